"""Measure on a GPU how wide the units of a multiprocessor are, and which of them work at the same time.

`gpuhash limits` computes with these widths. Each line is a loop of one mix of instructions on 16 chains of
registers: L is three-input logic, R a rotation, A an addition written as a multiplication by one, H the high
half of a product. The clocks are those of one multiprocessor for 64 threads, so an instruction that a pipe of
64 lanes starts in every clock takes one. LA takes longer than RA, because logic reads three registers, which
fill the two banks. RRH takes as long as three rotations, because the high half keeps ALU from starting. Run
it by `python -m tests.gpuhash.bench_pipes`.
"""

import statistics

import numpy as np

from gpuhash import cuda_device
from gpuhash.errors import BackendUnavailableError

MIXES = ("LLLL", "RRRR", "AAAA", "HHHH", "LA", "RA", "LLA", "LLLA", "RRRA", "RRA", "LH", "RRH", "RRRH")
CHAINS = 16
REPEATS = 8
LOOPS = 2000
BLOCKS_PER_SM = 12
THREADS = 256
RUNS = 5
OPTIONS = ("-std=c++17", f"-DCHAINS={CHAINS}", f"-DTHREADS={THREADS}")

SOURCE = """
typedef unsigned int u32;
__device__ __forceinline__ void L(u32 *x, int i, u32 one) {
  asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;"
               : "+r"(x[i % CHAINS]) : "r"(x[(i + 5) % CHAINS]), "r"(x[(i + 10) % CHAINS]));
}
__device__ __forceinline__ void R(u32 *x, int i, u32 one) {
  asm volatile("shf.l.wrap.b32 %0, %0, %0, 7;" : "+r"(x[i % CHAINS]));
}
__device__ __forceinline__ void A(u32 *x, int i, u32 one) {
  asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(x[i % CHAINS]) : "r"(one), "r"(x[(i + 5) % CHAINS]));
}
__device__ __forceinline__ void H(u32 *x, int i, u32 one) {
  asm volatile("mul.hi.u32 %0, %0, %1;" : "+r"(x[i % CHAINS]) : "r"(one));
}
extern "C" __global__ void __launch_bounds__(THREADS, 6) loop(u32 one, int loops, u32 *out) {
  u32 x[CHAINS];
  for (int i = 0; i < CHAINS; i++) x[i] = threadIdx.x * 77 + i + blockIdx.x;
#pragma unroll 1
  for (int j = 0; j < loops; j++) {
BODY
  }
  u32 sum = 0;
  for (int i = 0; i < CHAINS; i++) sum ^= x[i];
  if (sum == 12345) out[0] = sum;
}
"""


def clocks_of(device: cuda_device.CudaDevice, mix: str) -> float:
    """Return the clocks of a multiprocessor in which 64 threads do every instruction of `mix` once."""
    cupy = device.cupy
    steps = CHAINS * REPEATS // len(mix)
    calls = "".join(f"{mix[i % len(mix)]}(x, {i % CHAINS}, one);\n" for i in range(steps * len(mix)))
    function = cupy.RawModule(code=SOURCE.replace("BODY", calls), options=OPTIONS).get_function("loop")
    out = cupy.zeros(1, np.uint32)
    blocks = device.sm_count * BLOCKS_PER_SM
    times = []
    for _ in range(RUNS + 1):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        function((blocks,), (THREADS,), (np.uint32(1), np.int32(LOOPS), out))
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    seconds = statistics.median(times[1:])  # the first run raises the clocks of an idle GPU
    return seconds * device.clock_mhz * 1e6 / (BLOCKS_PER_SM * THREADS / 64 * LOOPS * steps)


def main() -> None:
    """Print the clocks of each mix."""
    try:
        device = cuda_device.devices()[0]
    except BackendUnavailableError as missing:
        raise SystemExit(str(missing)) from missing
    print(f"{device.name}; clocks are counted as if it kept its highest, {device.clock_mhz:g} MHz")
    print("mix    clocks of an SM for 64 threads")
    for mix in MIXES:
        print(f"{mix:6} {clocks_of(device, mix):.2f}", flush=True)


if __name__ == "__main__":
    main()
