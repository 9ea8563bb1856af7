/*
SHA-256 kernels. Digests are written as bytes, in the order the standard defines.

search        one nonce per thread and step: SHA-256d of an 80-byte header (midstate given)
hash_batch    one message per thread, any length, once or twice SHA-256
merkle_nodes  one 64-byte node per thread: SHA-256d of two concatenated digests
*/

// What does not depend on the nonce; made by gpuhash.kernel_calls.
struct Job {
  u32 midstate[8];
  u32 early[8];     // a..h after rounds 0 to 2 of the second block
  u32 round3_e;     // round 3 is round3_e + nonce and round3_a + nonce
  u32 round3_a;
  u32 w16, w17;     // schedule words without the nonce
  u32 w18_rest;     // w18 less sigma0(nonce)
  u32 w19_rest;     // w19 less nonce
  u32 w31_rest;     // w31 less what depends on the nonce
  u32 target_top;   // top 32 bits of the target
};

// The word of the hash that decides first: its last, as stored. nonce is as the header words have it.
DEVICE u32 top_word(const Job &job, u32 nonce, const Opaque &opaque) {
  // Word 4 of the second block is the padding bit, word 15 the length; words 5 to 14 are zero.
  const u32 length = 640;
  State state;
  u32 w[16];
  // Where round 4 looks for them: a..h at v[60 & 7 = 4], v[5], ...
  state.v[4] = job.round3_a + nonce;
  state.v[5] = job.early[0];
  state.v[6] = job.early[1];
  state.v[7] = job.early[2];
  state.v[0] = job.round3_e + nonce;
  state.v[1] = job.early[4];
  state.v[2] = job.early[5];
  state.v[3] = job.early[6];
#pragma unroll
  for (int t = 4; t < 16; t++)
    round_of<false, true>(state, t, K[t] + (t == 4 ? PAD_WORD : t == 15 ? length : 0), opaque);
#pragma unroll
  for (int t = 16; t < 32; t++) {
    u32 word;
    if (t == 16) word = job.w16;
    else if (t == 17) word = job.w17;
    else if (t == 18) word = job.w18_rest + sigma0(nonce);
    else if (t == 19) word = job.w19_rest + nonce;
    else {
      word = sigma1(w[(t - 2) & 15]);
      if (t >= 23) word = add(word, w[(t - 7) & 15], t, opaque);
      if (t == 20) word += PAD_WORD;
      if (t == 22) word += length;
      if (t == 30) word += 0x00a00055u;  // sigma0(length)
      if (t == 31) word += job.w31_rest;
    }
    w[t & 15] = word;
    round_with<false>(state, t, word, opaque);
  }
#pragma unroll
  for (int t = 32; t < 64; t++) round_with<false>(state, t, next_word<false>(w, t, opaque), opaque);
  add_state(state, job.midstate, opaque);
  set_digest_block(w, state);
  set_initial(state);
#pragma unroll
  for (int t = 0; t < 8; t++) round_with<false>(state, t, w[t], opaque);
#pragma unroll
  for (int t = 8; t < 16; t++) round_of<false, true>(state, t, w[t] + K[t], opaque);
#pragma unroll
  for (int t = 16; t < 57; t++) round_with<false>(state, t, next_word<true>(w, t, opaque), opaque);
#pragma unroll
  for (int t = 57; t < 61; t++) round_with<true>(state, t, next_word<true>(w, t, opaque), opaque);
  // e after round 60 is h after round 63; round 60 left it where it had found d.
  return state.v[(64 - 60 + 3) & 7] + INITIAL_STATE[7];
}

/*
Nonces low + 2^24 * high for low in [first_low, first_low + lows) and high in [first_high, first_high +
highs): the header stores a nonce low byte first, so counting high is adding one to the header's word.
found[0] counts the candidates, found[1...] are the first `capacity` of them.
*/
KERNEL BOUNDS(256, 6) search(const BY_VALUE Job job, const BY_VALUE Opaque opaque, u32 first_low, u32 lows,
                             u32 first_high, u32 highs, u32 *found, u32 capacity) {
  u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= lows) return;
  u32 nonce = byte_swap(first_low + index) + first_high;
#pragma unroll 1
  for (u32 end = nonce + highs; nonce != end; nonce++) {
    if (byte_swap(top_word(job, nonce, opaque)) <= job.target_top) {
      u32 place = atomicAdd(found, 1);
      if (place < capacity) found[1 + place] = byte_swap(nonce);
    }
  }
}

// The instruction cache holds two compressions and not three. merkle_nodes has three, so the first and the third
// are one loop; hash_batch has one, in a loop over all blocks of both hashes.
KERNEL BOUNDS(256, 4) hash_batch(const BY_VALUE Messages messages, const BY_VALUE Opaque opaque, u32 twice,
                                 u8 *digests) {
  i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i >= messages.count) return;
  Message message = message_at(messages, i);
  State state;
  set_initial(state);
  // Padding needs the byte 0x80 and the length in bits: 9 bytes.
  i64 blocks = (message.length + 9 + 63) / 64;
#pragma unroll 1
  for (i64 block = 0; block < blocks + twice; block++) {
    u32 w[16];
    if (block == blocks) {
      set_digest_block(w, state);
      set_initial(state);
    } else {
#pragma unroll
      for (int j = 0; j < 16; j++) {
        i64 position = block * 64 + 4 * j;
        u32 word = bytes_at(message, position);
        i64 end = message.length - position;
        if (end >= 0 && end < 4) word |= 0x80u << 8 * (int)end;
        w[j] = byte_swap(word);
      }
      if (block == blocks - 1) {
        w[14] = (u32)((u64)message.length >> 29);
        w[15] = (u32)((u64)message.length << 3);
      }
    }
    compress(state, w, opaque);
  }
  u32 *digest = (u32 *)(digests + 32 * message.number);
#pragma unroll
  for (int j = 0; j < 8; j++) digest[j] = byte_swap(state.v[j]);
}

// nodes holds count * 64 bytes, digests count * 32, both aligned to 16 bytes.
KERNEL BOUNDS(256, 4) merkle_nodes(const Quad *nodes, const BY_VALUE Opaque opaque, i64 count, Quad *digests) {
  i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i >= count) return;
  State state;
  u32 w[16];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const Quad quad = nodes[4 * i + j];
#pragma unroll
    for (int k = 0; k < 4; k++) w[4 * j + k] = byte_swap(quad.words[k]);
  }
  UNROLL(1)
  for (int hash = 0; hash < 2; hash++) {
    set_initial(state);
    compress(state, w, opaque);
    if (hash == 0) {
      compress_padding_of_64_bytes(state, opaque);
      set_digest_block(w, state);
    }
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    Quad quad;
#pragma unroll
    for (int k = 0; k < 4; k++) quad.words[k] = byte_swap(state.v[4 * j + k]);
    digests[2 * i + j] = quad;
  }
}
