/*
Types and instructions that every kernel here is written in.

One source, three compilers: CUDA (NVRTC or nvcc), HIP, and with GPUHASH_HOST plain C++, which runs a
kernel one thread at a time so that the tests can compare it with the reference without a GPU. An
instruction that CUDA writes in assembly has its meaning in C++ beside it.

The integer units of an NVIDIA SM are two pipes of 64 lanes: ALU (add, logic, shift, rotate) and FMA
(multiply-add). Hashes need far more of the first, so additions can be written as multiplications by one.
The ones come from the kernel's arguments: the compiler must not know them, or it turns the multiplication
back into an addition. Shifts and rotations stay on ALU: the high half of a product holds FMA for two clocks
and keeps ALU from starting for one, as long as a shift would take (tests/gpuhash/bench_pipes.py).

An SM reads the registers of a thread from two banks, one register per clock from each. A factor that
thousands of instructions read from one register makes its bank the slowest part. Of a factor that is used
some thirty times the compiler mostly makes a uniform register, which is in neither bank; so there are many ones.
*/
#ifdef GPUHASH_HOST

#include <stdint.h>
typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
#define DEVICE static inline
#define CONSTANT static constexpr
#define KERNEL extern "C" void
#define BOUNDS(threads, blocks)
#define BY_VALUE
struct Place { u32 x; };
// Several threads run kernels at once, and each has its own place.
static thread_local Place blockIdx, blockDim, threadIdx;
extern "C" void set_place(u32 block, u32 thread, u32 threads) {
  blockIdx.x = block, threadIdx.x = thread, blockDim.x = threads;
}
DEVICE u32 atomicAdd(u32 *counter, u32 amount) { u32 before = *counter; *counter += amount; return before; }
DEVICE u32 funnel_left(u32 high, u32 low, int places) { return (u32)(((u64)high << 32 | low) << places >> 32); }
DEVICE u32 byte_swap(u32 x) { return __builtin_bswap32(x); }
DEVICE u32 multiply_add(u32 a, u32 b, u32 c) { return a * b + c; }
template <int TABLE> DEVICE u32 logic3(u32 a, u32 b, u32 c) {
  u32 result = 0;
  for (int row = 0; row < 8; row++)
    if (TABLE >> row & 1) result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
  return result;
}

#else

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define DEVICE __device__ __forceinline__
#define CONSTANT __constant__ constexpr
#define KERNEL extern "C" __global__ void
#define BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
DEVICE u32 funnel_left(u32 high, u32 low, int places) { return __funnelshift_l(low, high, places); }
DEVICE u32 byte_swap(u32 x) { return __byte_perm(x, 0, 0x0123); }

#ifdef __HIP_PLATFORM_AMD__

#define BY_VALUE
DEVICE u32 multiply_add(u32 a, u32 b, u32 c) { return a * b + c; }
template <int TABLE> DEVICE u32 logic3(u32 a, u32 b, u32 c) {
  if (TABLE == 0x96) return a ^ b ^ c;
  if (TABLE == 0xCA) return c ^ (a & (b ^ c));
  if (TABLE == 0xE8) return (a & b) | (c & (a | b));
  return a ^ (~b & c);  // 0xD2
}

#else

#define BY_VALUE __grid_constant__
DEVICE u32 multiply_add(u32 a, u32 b, u32 c) {
  u32 result;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
template <int TABLE> DEVICE u32 logic3(u32 a, u32 b, u32 c) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
  return result;
}

#endif
#endif

// Truth tables of logic3: bit 4a + 2b + c is the result for bits a, b, c.
enum { XOR3 = 0x96, CHOOSE = 0xCA, MAJORITY = 0xE8, AND_NOT_XOR = 0xD2 };

// Ones that the compiler must not know. Two rounds share an element of `one`. `one_for_constants` is for additions of a
// known number: that instruction has no room for a uniform register.
struct Opaque {
  u32 one[32];
  u32 one_for_constants;
};

// UNROLL(times) stands before a loop whose rounds do not all fit the instruction cache: the compiler writes at
// most `times` of them one after the other. With UNROLL_ALL it writes all, so that its listing shows every
// instruction of a hash.
#ifdef UNROLL_ALL
#define UNROLL(times) _Pragma("unroll")
#else
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(times) PRAGMA(unroll times)
#endif

DEVICE u32 rotate_right(u32 x, int places) { return funnel_left(x, x, 32 - places); }
DEVICE u32 xor3(u32 a, u32 b, u32 c) { return logic3<XOR3>(a, b, c); }

// What one load instruction takes; aligned to its size.
struct alignas(16) Quad {
  u32 words[4];
};

// Message i of a batch: flat[start, end). offsets is null when all messages have the same length; order,
// unless null, gives the number of the i-th message in order of its blocks, so that threads of a warp end
// together.
struct Messages {
  const u8 *flat;
  const i64 *offsets;
  const i64 *order;
  i64 length;
  i64 count;
};

struct Message {
  const u8 *start;
  i64 length;
  i64 number;
};

DEVICE Message message_at(const Messages &messages, i64 i) {
  i64 number = messages.order ? messages.order[i] : i;
  i64 first = messages.offsets ? messages.offsets[number] : number * messages.length;
  i64 length = messages.offsets ? messages.offsets[number + 1] - first : messages.length;
  Message message = {messages.flat + first, length, number};
  return message;
}

// The four bytes of a message from `position` on, the first in the lowest place; zeros behind its end. Only
// aligned words that hold a byte of the message are read.
DEVICE u32 bytes_at(const Message &message, i64 position) {
  i64 left = message.length - position;
  if (left <= 0) return 0;
  const u8 *place = message.start + position;
  int skip = (int)((u64)place & 3);
  const u32 *word = (const u32 *)(place - skip);
  u32 low = word[0];
  u32 high = skip && left > 4 - skip ? word[1] : 0;
  u32 value = skip ? low >> 8 * skip | high << (32 - 8 * skip) : low;
  return left >= 4 ? value : value & ((1u << 8 * (int)left) - 1);
}
