/*
Keccak kernels; domain is the padding byte, 0x01 for Keccak-256 and 0x06 for SHA3-256.

hash_batch     one message per thread, any length
hash_64_bytes  one 64-byte message per thread, aligned to 16 bytes: nothing but the permutation
*/
enum { RATE_BYTES = 136, RATE_WORDS = 17 };

KERNEL BOUNDS(128, 3) hash_batch(const BY_VALUE Messages messages, u32 domain,
                                 u8 *digests) {
  i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i >= messages.count) return;
  Message message = message_at(messages, i);
  Lane a[25];
#pragma unroll
  for (int j = 0; j < 25; j++) a[j] = Lane{0, 0};
  for (i64 block = 0; block <= message.length; block += RATE_BYTES) {
#pragma unroll
    for (int j = 0; j < RATE_WORDS; j++) {
      i64 position = block + 8 * j;
      i64 end = message.length - position;
      a[j].low ^= bytes_at(message, position);
      a[j].high ^= bytes_at(message, position + 4);
      if (end >= 0 && end < 4) a[j].low ^= domain << 8 * (int)end;
      if (end >= 4 && end < 8) a[j].high ^= domain << 8 * (int)(end - 4);
    }
    if (message.length - block < RATE_BYTES) a[RATE_WORDS - 1].high ^= 0x80000000u;
    permute(a);
  }
  u32 *digest = (u32 *)(digests + 32 * message.number);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    digest[2 * j] = a[j].low;
    digest[2 * j + 1] = a[j].high;
  }
}

KERNEL BOUNDS(128, 5) hash_64_bytes(const Quad *messages, i64 count, u32 domain, Quad *digests) {
  i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i >= count) return;
  Lane a[25];
#pragma unroll
  for (int j = 0; j < 25; j++) a[j] = Lane{0, 0};
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const Quad quad = messages[4 * i + j];
    a[2 * j] = Lane{quad.words[0], quad.words[1]};
    a[2 * j + 1] = Lane{quad.words[2], quad.words[3]};
  }
  a[8].low = domain;
  a[RATE_WORDS - 1].high = 0x80000000u;
  permute_to_digest(a);
#pragma unroll
  for (int j = 0; j < 2; j++)
    digests[2 * i + j] = Quad{{a[2 * j].low, a[2 * j].high, a[2 * j + 1].low, a[2 * j + 1].high}};
}
