/*
Keccak-f[1600] (FIPS 202) in registers, a lane as two 32-bit halves; word x + 5y is lane (x, y).
*/
struct Lane {
  u32 low, high;
};

DEVICE Lane xor3(Lane a, Lane b, Lane c) { return Lane{xor3(a.low, b.low, c.low), xor3(a.high, b.high, c.high)}; }

DEVICE Lane and_not_xor(Lane a, Lane b, Lane c) {
  return Lane{logic3<AND_NOT_XOR>(a.low, b.low, c.low), logic3<AND_NOT_XOR>(a.high, b.high, c.high)};
}

template <int PLACES> DEVICE Lane rotate_left(Lane lane) {
  const int places = PLACES & 31;
  Lane x = PLACES & 32 ? Lane{lane.high, lane.low} : lane;
  if (places == 0) return x;
  return Lane{funnel_left(x.low, x.high, places), funnel_left(x.high, x.low, places)};
}

CONSTANT u64 ROUND_CONSTANTS[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};

// One round; LAST computes only the four words of a digest.
template <bool LAST> DEVICE void keccak_round(Lane a[25], u64 constant) {
  Lane parity[5], turned[5], b[25];
#pragma unroll
  for (int x = 0; x < 5; x++) parity[x] = xor3(xor3(a[x], a[x + 5], a[x + 10]), a[x + 15], a[x + 20]);
#pragma unroll
  for (int x = 0; x < 5; x++) turned[x] = rotate_left<1>(parity[x]);
  // b[TO] = a[FROM] with theta added, turned by PLACES
#define RHO_PI(TO, FROM, PLACES) \
  b[TO] = rotate_left<PLACES>(xor3(a[FROM], parity[(FROM + 4) % 5], turned[(FROM + 1) % 5]));
  RHO_PI(0, 0, 0) RHO_PI(1, 6, 44) RHO_PI(2, 12, 43) RHO_PI(3, 18, 21) RHO_PI(4, 24, 14)
  if (!LAST) {
    RHO_PI(5, 3, 28) RHO_PI(6, 9, 20) RHO_PI(7, 10, 3) RHO_PI(8, 16, 45) RHO_PI(9, 22, 61)
    RHO_PI(10, 1, 1) RHO_PI(11, 7, 6) RHO_PI(12, 13, 25) RHO_PI(13, 19, 8) RHO_PI(14, 20, 18)
    RHO_PI(15, 4, 27) RHO_PI(16, 5, 36) RHO_PI(17, 11, 10) RHO_PI(18, 17, 15) RHO_PI(19, 23, 56)
    RHO_PI(20, 2, 62) RHO_PI(21, 8, 55) RHO_PI(22, 14, 39) RHO_PI(23, 15, 41) RHO_PI(24, 21, 2)
  }
#undef RHO_PI
#pragma unroll
  for (int i = 0; i < (LAST ? 4 : 25); i++)
    a[i] = and_not_xor(b[i], b[i / 5 * 5 + (i + 1) % 5], b[i / 5 * 5 + (i + 2) % 5]);
  a[0].low ^= (u32)constant;
  a[0].high ^= (u32)(constant >> 32);
}

// The instruction cache does not hold 24 rounds one after the other: a loop of three takes a seventh less time
// on an H100.
DEVICE void permute(Lane a[25]) {
  UNROLL(3)
  for (int i = 0; i < 24; i++) keccak_round<false>(a, ROUND_CONSTANTS[i]);
}

// Permute, and of the result compute only the four words of a digest.
DEVICE void permute_to_digest(Lane a[25]) {
  UNROLL(3)
  for (int i = 0; i < 23; i++) keccak_round<false>(a, ROUND_CONSTANTS[i]);
  keccak_round<true>(a, ROUND_CONSTANTS[23]);
}
