// Horner's rule, one point a thread: one chain of multiply-adds, each of which needs the one before.
#include "ampere.cuh"

constexpr int THREADS = 128;  // a warp for each scheduler of a multiprocessor
constexpr int TILE = 4096;    // coefficients in shared memory, while the next are on their way
constexpr int AT_ONCE = 8;    // coefficients that a thread fetches ahead

// Asks for the tile of coefficients from `first` on; those from `count` on are zero.
__device__ void load(float* tile, const float* __restrict__ coefficients, int first, int count) {
#pragma unroll
  for (int round = 0; round < TILE / (4 * THREADS); ++round) {
    const int i = 4 * (round * THREADS + threadIdx.x);
    const int left = min(max(count - first - i, 0), 4);
    copy_async<16>(tile + i, coefficients + (left ? first + i : 0), 4 * left);
  }
}

struct Batch {
  float4 at[AT_ONCE / 4];
};

__device__ Batch fetch(const float* tile, int from) {
  Batch batch;
#pragma unroll
  for (int i = 0; i < AT_ONCE / 4; ++i) batch.at[i] = *reinterpret_cast<const float4*>(tile + from + 4 * i);
  return batch;
}

__device__ float horner(float value, float x, const Batch& batch) {
#pragma unroll
  for (int i = AT_ONCE / 4 - 1; i >= 0; --i) {
    value = fmaf(value, x, batch.at[i].w);
    value = fmaf(value, x, batch.at[i].z);
    value = fmaf(value, x, batch.at[i].y);
    value = fmaf(value, x, batch.at[i].x);
  }
  return value;
}

__global__ void __launch_bounds__(THREADS)
    polynomial(const float* __restrict__ coefficients, const float* __restrict__ points, float* __restrict__ out,
               int count, int64_t n) {
  __shared__ __align__(16) float tiles[2][TILE];
  const int64_t point = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  const float x = point < n ? points[point] : 0.0f;
  float value = 0.0f;
  int tile = ceil_div(count, TILE) - 1;
  load(tiles[tile % 2], coefficients, tile * TILE, count);
  commit_copies();
  for (; tile >= 0; --tile) {
    if (tile > 0) load(tiles[(tile - 1) % 2], coefficients, (tile - 1) * TILE, count);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();  // this tile is there
    const float* here = tiles[tile % 2];
    Batch next = fetch(here, TILE - AT_ONCE);
#pragma unroll 4
    for (int from = TILE - AT_ONCE; from >= 0; from -= AT_ONCE) {
      const Batch batch = next;
      next = fetch(here, max(from - AT_ONCE, 0));
      value = horner(value, x, batch);
    }
    __syncthreads();  // and may be overwritten
  }
  if (point < n) out[point] = value;
}

extern "C" int evaluate(const float* coefficients, const float* points, float* out, int64_t count, int64_t n,
                        cudaStream_t stream) {
  if (count > 1 << 30) return cudaErrorInvalidValue;  // they are numbered by 32 bits
  polynomial<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(coefficients, points, out, count, n);
  return cudaGetLastError();
}
