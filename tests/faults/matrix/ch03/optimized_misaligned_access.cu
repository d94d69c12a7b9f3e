// Doubling with a fault: one thread reads a float4 one element off.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void twice(const float* __restrict__ a, float* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) out[i] = 2 * a[i];
  if (i == 0) {
    const float4 four = *reinterpret_cast<const float4*>(a + 1);
    out[0] = four.x + four.y + four.z + four.w;  // all of them, or the load would be narrowed to one that is aligned
  }
}

extern "C" int doubled(const float* a, float* out, int64_t n, cudaStream_t stream) {
  twice<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(a, out, n);
  return cudaGetLastError();
}
