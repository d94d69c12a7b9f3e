// Sine and cosine of an angle in radians. Beyond 105,615 the library reduces the angle by a slow path, with an array in
// local memory.
// spills: the slow path's array, which is what this file is about
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    table_one(const float* __restrict__ frequencies, float* __restrict__ out, int64_t positions, int half) {
  const int64_t at = int64_t(blockIdx.x) * THREADS + threadIdx.x, n = positions * half;
  if (at >= n) return;
  const int64_t position = at / half;
  sincosf(float(position) * frequencies[at - position * half], out + n + at, out + at);
}

// out: cosines (positions, half), then sines.
extern "C" int table(const float* frequencies, float* out, int64_t positions, int half, cudaStream_t stream) {
  table_one<<<ceil_div(positions * half, THREADS), THREADS, 0, stream>>>(frequencies, out, positions, half);
  return cudaGetLastError();
}
