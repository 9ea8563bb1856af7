/*
SHA-256 (FIPS 180-4) in registers; every index below is known to the compiler.

ADD_ON_FMA=1 makes additions multiply-adds by one, which the FMA pipe does.
*/
#ifndef ADD_ON_FMA
#define ADD_ON_FMA 0
#endif

CONSTANT u32 K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

CONSTANT u32 INITIAL_STATE[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
enum : u32 { PAD_WORD = 0x80000000u };

// Constant and word of every round over the block that pads a 64-byte message; the compiler computes it.
struct Rounds {
  u32 constant_and_word[64];
};

DEVICE constexpr u32 rotated(u32 x, int places) { return x >> places | x << (32 - places); }

DEVICE constexpr Rounds padding_rounds() {
  Rounds rounds{};
  u32 w[64] = {PAD_WORD};
  w[15] = 512;
  for (int t = 16; t < 64; t++) {
    u32 x = w[t - 15], y = w[t - 2];
    w[t] = w[t - 16] + w[t - 7] + (rotated(x, 7) ^ rotated(x, 18) ^ x >> 3) +
           (rotated(y, 17) ^ rotated(y, 19) ^ y >> 10);
  }
  for (int t = 0; t < 64; t++) rounds.constant_and_word[t] = w[t] + K[t];
  return rounds;
}

CONSTANT Rounds PADDING_ROUNDS = padding_rounds();

// The working variables a..h; round t finds a at v[(64 - t) % 8], so nothing is moved between rounds.
struct State {
  u32 v[8];
};

// a + b in round t; two rounds share a one, so that each is used about 30 times.
DEVICE u32 add(u32 a, u32 b, int t, const Opaque &opaque) {
  return ADD_ON_FMA ? multiply_add(a, opaque.one[t / 2], b) : a + b;
}

DEVICE u32 sigma0(u32 x) { return xor3(rotate_right(x, 7), rotate_right(x, 18), x >> 3); }
DEVICE u32 sigma1(u32 x) { return xor3(rotate_right(x, 17), rotate_right(x, 19), x >> 10); }

// A sum whose known terms the compiler adds up.
struct Sum {
  u32 unknown, known;
  bool any_unknown;
};

DEVICE void include(Sum &sum, u32 term, bool is_known, int t, const Opaque &opaque) {
  if (is_known) {
    sum.known += term;
    return;
  }
  sum.unknown = sum.any_unknown ? add(sum.unknown, term, t, opaque) : term;
  sum.any_unknown = true;
}

// Word t >= 16 of the message schedule, in place of word t - 16. OF_DIGEST: the compiler knows words 8 to 15.
template <bool OF_DIGEST> DEVICE u32 next_word(u32 w[16], int t, const Opaque &opaque) {
  Sum sum = {0, 0, false};
  include(sum, w[t & 15], OF_DIGEST && t - 16 >= 8 && t - 16 < 16, t, opaque);
  include(sum, w[(t - 7) & 15], OF_DIGEST && t - 7 < 16, t, opaque);
  include(sum, sigma0(w[(t - 15) & 15]), OF_DIGEST && t - 15 >= 8 && t - 15 < 16, t, opaque);
  include(sum, sigma1(w[(t - 2) & 15]), OF_DIGEST && t - 2 < 16, t, opaque);
  return w[t & 15] = sum.unknown + sum.known;
}

// Round t with the sum of its constant and word. ONLY_E leaves out what only a needs. KNOWN: the compiler
// knows that sum.
template <bool ONLY_E, bool KNOWN>
DEVICE void round_of(State &state, int t, u32 constant_and_word, const Opaque &opaque) {
  u32 *v = state.v;
  const int first = 64 - t;
  u32 a = v[first & 7], b = v[(first + 1) & 7], c = v[(first + 2) & 7];
  u32 e = v[(first + 4) & 7], f = v[(first + 5) & 7], g = v[(first + 6) & 7];
  u32 &d = v[(first + 3) & 7], &h = v[(first + 7) & 7];
  u32 t1 = KNOWN ? h + constant_and_word : add(h, constant_and_word, t, opaque);
  t1 = add(t1, logic3<CHOOSE>(e, f, g), t, opaque);
  t1 = add(t1, xor3(rotate_right(e, 6), rotate_right(e, 11), rotate_right(e, 25)), t, opaque);
  d = add(d, t1, t, opaque);
  if (ONLY_E) return;
  u32 t2 = add(t1, logic3<MAJORITY>(a, b, c), t, opaque);
  h = add(t2, xor3(rotate_right(a, 2), rotate_right(a, 13), rotate_right(a, 22)), t, opaque);
}

// Round t with a word that the compiler does not know.
template <bool ONLY_E>
DEVICE void round_with(State &state, int t, u32 word, const Opaque &opaque) {
  u32 constant_and_word = ADD_ON_FMA ? multiply_add(word, opaque.one_for_constants, K[t]) : word + K[t];
  round_of<ONLY_E, false>(state, t, constant_and_word, opaque);
}

DEVICE void set_initial(State &state) {
#pragma unroll
  for (int i = 0; i < 8; i++) state.v[i] = INITIAL_STATE[i];
}

DEVICE void add_state(State &state, const u32 before[8], const Opaque &opaque) {
#pragma unroll
  for (int i = 0; i < 8; i++) state.v[i] = add(state.v[i], before[i], 2 * i, opaque);
}

// Compress one block, w, into state; w is used up.
DEVICE void compress(State &state, u32 w[16], const Opaque &opaque) {
  State before = state;
#pragma unroll
  for (int t = 0; t < 64; t++)
    round_with<false>(state, t, t < 16 ? w[t] : next_word<false>(w, t, opaque), opaque);
  add_state(state, before.v, opaque);
}

DEVICE void compress_padding_of_64_bytes(State &state, const Opaque &opaque) {
  State before = state;
#pragma unroll
  for (int t = 0; t < 64; t++) round_of<false, true>(state, t, PADDING_ROUNDS.constant_and_word[t], opaque);
  add_state(state, before.v, opaque);
}

// Make w the only block of a message that is itself a digest.
DEVICE void set_digest_block(u32 w[16], const State &digest) {
#pragma unroll
  for (int i = 0; i < 8; i++) w[i] = digest.v[i];
  w[8] = PAD_WORD;
#pragma unroll
  for (int i = 9; i < 15; i++) w[i] = 0;
  w[15] = 256;
}
