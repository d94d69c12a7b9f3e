// Doubling with a fault: one thread asserts that it is another.
#include "kernel.cuh"
#undef NDEBUG
#include <cassert>

constexpr int THREADS = 256;

__global__ void twice(const float* __restrict__ a, float* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  assert(i != 0);
  if (i < n) out[i] = 2 * a[i];
}

extern "C" int doubled(const float* a, float* out, int64_t n, cudaStream_t stream) {
  twice<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(a, out, n);
  return cudaGetLastError();
}
