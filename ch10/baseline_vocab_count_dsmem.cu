// Count ids with one global atomic each, carried out by the L2 cache.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void count(const int* __restrict__ ids, int* __restrict__ counts, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) atomicAdd(counts + ids[i], 1);
}

extern "C" int count_ids(const int* ids, int* counts, int64_t n, int64_t vocabulary, cudaStream_t stream) {
  TRY(cudaMemsetAsync(counts, 0, vocabulary * sizeof(int), stream));
  count<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(ids, counts, n);
  return cudaGetLastError();
}
