// A block counts what its threads keep, asks the counter once for all, and each warp writes its part side by side.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int EACH = 16;  // numbers of a thread

// A warp's numbers: four neighbours a lane at a time, or one by one where the block reaches over the end.
__device__ __forceinline__ void load(const float* __restrict__ x, int64_t first, int64_t n, float (&mine)[EACH]) {
  const int lane = threadIdx.x % 32;
  if (first + 32 * EACH <= n) {
#pragma unroll
    for (int k = 0; k < EACH; k += 4) {
      const float4 four = *reinterpret_cast<const float4*>(x + first + 32 * k + 4 * lane);
      mine[k] = four.x, mine[k + 1] = four.y, mine[k + 2] = four.z, mine[k + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int64_t i = first + 32 * k + lane;
      mine[k] = i < n ? x[i] : 0.0f;  // which is not kept
    }
  }
}

// Round by round, which lanes keep their number; returns how many are kept by the warp.
__device__ __forceinline__ int choose(const float (&mine)[EACH], uint32_t (&keep)[EACH]) {
  int sum = 0;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    keep[k] = __ballot_sync(~0u, mine[k] > 0.0f);
    sum += __popc(keep[k]);
  }
  return sum;
}

// The lanes that keep a number of the round write side by side, from `place` on.
__device__ __forceinline__ void store(float* __restrict__ out, const float (&mine)[EACH], const uint32_t (&keep)[EACH],
                                      int place, int64_t room) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int at = place + __popc(keep[k] & ((1u << lane) - 1));
    if (keep[k] >> lane & 1 && at < room) out[at] = mine[k];
    place += __popc(keep[k]);
  }
}

__global__ void __launch_bounds__(THREADS)
    filter_block(const float* __restrict__ x, float* __restrict__ out, int* count, int64_t n, int64_t room) {
  __shared__ int sums[WARPS], start;
  const int warp = threadIdx.x / 32;
  float mine[EACH];
  uint32_t keep[EACH];
  load(x, (int64_t(blockIdx.x) * WARPS + warp) * 32 * EACH, n, mine);
  const int sum = choose(mine, keep);
  if (threadIdx.x % 32 == 0) sums[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    int all = 0;
    for (int w = 0; w < WARPS; ++w) all += sums[w];
    start = atomicAdd(count, all);
  }
  __syncthreads();
  int place = start;
  for (int w = 0; w < warp; ++w) place += sums[w];
  store(out, mine, keep, place, room);
}

// Fails with cudaErrorInvalidValue where an int cannot count them.
extern "C" int filter(const float* x, float* out, int* count, int64_t n, int64_t room, cudaStream_t stream) {
  if (n > INT32_MAX) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(count, 0, sizeof(int), stream));
  filter_block<<<ceil_div(n, EACH * THREADS), THREADS, 0, stream>>>(x, out, count, n, room);
  return cudaGetLastError();
}
