// Count codes with one global atomic each: all threads of the GPU meet at the same 256 counters in the L2 cache.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int BINS = 256;

__global__ void count(const uint8_t* __restrict__ codes, int* __restrict__ bins, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) atomicAdd(bins + codes[i], 1);
}

extern "C" int histogram(const uint8_t* codes, int* bins, int64_t n, cudaStream_t stream) {
  TRY(cudaMemsetAsync(bins, 0, BINS * sizeof(int), stream));
  count<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(codes, bins, n);
  return cudaGetLastError();
}
