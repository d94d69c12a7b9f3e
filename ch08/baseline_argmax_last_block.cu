// One block for a row: every thread looks at each 1024th logit, then the block joins what its threads found.
#include "kernel.cuh"

constexpr int THREADS = 1024;

struct Best {
  float logit;
  int id;
};

__device__ Best join(Best a, Best b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id) ? a : b;  // of equals, the first
}

__device__ Best join_warp(Best mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine = join(mine, {__shfl_xor_sync(~0u, mine.logit, lanes), __shfl_xor_sync(~0u, mine.id, lanes)});
  }
  return mine;
}

__global__ void __launch_bounds__(THREADS)
    find(const float* __restrict__ logits, int64_t* __restrict__ ids, int vocabulary) {
  __shared__ Best of_warps[THREADS / 32];
  const float* row = logits + int64_t(blockIdx.x) * vocabulary;
  Best mine = {-INFINITY, vocabulary};
  for (int id = threadIdx.x; id < vocabulary; id += THREADS) mine = join(mine, {row[id], id});
  mine = join_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x < 32) {
    mine = join_warp(of_warps[threadIdx.x]);
    if (threadIdx.x == 0) ids[blockIdx.x] = mine.id;
  }
}

extern "C" int argmax(const float* logits, int64_t* ids, int64_t rows, int64_t vocabulary, cudaStream_t stream) {
  find<<<rows, THREADS, 0, stream>>>(logits, ids, int(vocabulary));
  return cudaGetLastError();
}
