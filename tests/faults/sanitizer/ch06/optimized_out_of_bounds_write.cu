// Doubling with a fault: one thread too many passes the guard, and writes past the end.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void twice(const float* __restrict__ a, float* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i <= n) out[i] = i < n ? 2 * a[i] : 0.0f;
}

extern "C" int doubled(const float* a, float* out, int64_t n, cudaStream_t stream) {
  twice<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(a, out, n);
  return cudaGetLastError();
}
