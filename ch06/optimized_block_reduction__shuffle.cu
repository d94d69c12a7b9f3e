// Sum an array with one element a thread, by shuffles within a warp: one barrier is left, for the warps' eight sums.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

__device__ float sum_of_warp(float value) {  // in lane 0
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_down_sync(~0u, value, half);
  return value;
}

__global__ void sum_shuffled(const float* __restrict__ a, float* __restrict__ sums, int64_t n) {
  __shared__ float warps[WARPS];
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float own = sum_of_warp(i < n ? a[i] : 0.0f);
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  if (warp == 0) {
    const float all = sum_of_warp(lane < WARPS ? warps[lane] : 0.0f);
    if (lane == 0) sums[blockIdx.x] = all;
  }
}

// The sums of blocks are summed in turn until one is left; `sums` holds those of all passes, one after the other.
extern "C" int sum(const float* a, float* sums, float* out, int64_t n, cudaStream_t stream) {
  for (int64_t blocks; (blocks = ceil_div(n, THREADS)) > 1; n = blocks) {
    sum_shuffled<<<blocks, THREADS, 0, stream>>>(a, sums, n);
    a = sums;
    sums += blocks;
  }
  sum_shuffled<<<1, THREADS, 0, stream>>>(a, out, n);
  return cudaGetLastError();
}
