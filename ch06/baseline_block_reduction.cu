// Sum an array with one element a thread and a tree in shared memory: eight levels, and a barrier at each.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void sum_tree(const float* __restrict__ a, float* __restrict__ sums, int64_t n) {
  __shared__ float tree[THREADS];
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  tree[threadIdx.x] = i < n ? a[i] : 0.0f;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = tree[0];
}

// The sums of blocks are summed in turn until one is left; `sums` holds those of all passes, one after the other.
extern "C" int sum(const float* a, float* sums, float* out, int64_t n, cudaStream_t stream) {
  for (int64_t blocks; (blocks = ceil_div(n, THREADS)) > 1; n = blocks) {
    sum_tree<<<blocks, THREADS, 0, stream>>>(a, sums, n);
    a = sums;
    sums += blocks;
  }
  sum_tree<<<1, THREADS, 0, stream>>>(a, out, n);
  return cudaGetLastError();
}
