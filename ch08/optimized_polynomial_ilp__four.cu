// Horner's rule in CHAINS ranges of the coefficients, one point a thread: chains that do not wait for each other.
#include "ampere.cuh"

constexpr int THREADS = 128;  // a warp for each scheduler of a multiprocessor
constexpr int CHAINS = 4;
constexpr int TILE = 4096 / CHAINS;  // coefficients of each range in shared memory, while the next are on their way
constexpr int AT_ONCE = 8;           // coefficients of each range that a thread fetches ahead

// Asks for a tile of each range of `length` coefficients, from `first` on; those from `count` on are zero.
__device__ void load(float (&tile)[CHAINS][TILE], const float* __restrict__ coefficients, int first, int length,
                     int count) {
#pragma unroll
  for (int round = 0; round < CHAINS * TILE / (4 * THREADS); ++round) {
    const int i = 4 * (round * THREADS + threadIdx.x);
    const int at = i / TILE * length + first + i % TILE;
    const int left = min(max(count - at, 0), 4);
    copy_async<16>(&tile[i / TILE][i % TILE], coefficients + (left ? at : 0), 4 * left);
  }
}

struct Batch {
  float4 at[CHAINS][AT_ONCE / 4];
};

__device__ Batch fetch(const float (&tile)[CHAINS][TILE], int from) {
  Batch batch;
#pragma unroll
  for (int chain = 0; chain < CHAINS; ++chain) {
#pragma unroll
    for (int i = 0; i < AT_ONCE / 4; ++i) {
      batch.at[chain][i] = *reinterpret_cast<const float4*>(&tile[chain][from + 4 * i]);
    }
  }
  return batch;
}

// One coefficient of each range after the other: between two steps of a chain stand those of all others.
__device__ void horner(float (&value)[CHAINS], float x, const Batch& batch) {
#pragma unroll
  for (int i = AT_ONCE / 4 - 1; i >= 0; --i) {
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) value[chain] = fmaf(value[chain], x, batch.at[chain][i].w);
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) value[chain] = fmaf(value[chain], x, batch.at[chain][i].z);
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) value[chain] = fmaf(value[chain], x, batch.at[chain][i].y);
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) value[chain] = fmaf(value[chain], x, batch.at[chain][i].x);
  }
}

// In fp64, since an error of x grows with the exponent.
__device__ double power(double x, int exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2, x *= x) result = exponent % 2 ? result * x : result;
  return result;
}

__global__ void __launch_bounds__(THREADS)
    polynomial(const float* __restrict__ coefficients, const float* __restrict__ points, float* __restrict__ out,
               int count, int64_t n) {
  __shared__ __align__(16) float tiles[2][CHAINS][TILE];
  const int64_t point = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  const float x = point < n ? points[point] : 0.0f;
  float value[CHAINS] = {};
  int tile = ceil_div(count, CHAINS * TILE) - 1;
  const int length = (tile + 1) * TILE;  // of a range
  load(tiles[tile % 2], coefficients, tile * TILE, length, count);
  commit_copies();
  for (; tile >= 0; --tile) {
    if (tile > 0) load(tiles[(tile - 1) % 2], coefficients, (tile - 1) * TILE, length, count);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();  // this tile is there
    const auto& here = tiles[tile % 2];
    Batch next = fetch(here, TILE - AT_ONCE);
#pragma unroll 4
    for (int from = TILE - AT_ONCE; from >= 0; from -= AT_ONCE) {
      const Batch batch = next;
      next = fetch(here, max(from - AT_ONCE, 0));
      horner(value, x, batch);
    }
    __syncthreads();  // and may be overwritten
  }
  const float over = power(x, length);  // one range
  float sum = value[CHAINS - 1];
#pragma unroll
  for (int chain = CHAINS - 2; chain >= 0; --chain) sum = fmaf(sum, over, value[chain]);
  if (point < n) out[point] = sum;
}

extern "C" int evaluate(const float* coefficients, const float* points, float* out, int64_t count, int64_t n,
                        cudaStream_t stream) {
  if (count > 1 << 30) return cudaErrorInvalidValue;  // they are numbered by 32 bits
  polynomial<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(coefficients, points, out, count, n);
  return cudaGetLastError();
}
