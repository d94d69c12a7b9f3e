// Horner's rule with eight chains a thread. Four lanes share four points, and each takes two of eight ranges of the
// coefficients: a coefficient that has been fetched serves four multiply-adds.
#include "ampere.cuh"

constexpr int THREADS = 128;  // a warp for each scheduler of a multiprocessor
constexpr int POINTS = 4;     // of a thread, and the lanes that share them
constexpr int OWN = 2;        // ranges of a thread
constexpr int RANGES = POINTS * OWN;
constexpr int TILE = 4096 / RANGES;  // coefficients of each range in shared memory, the next on their way
constexpr int PITCH = TILE + 4;      // so that four lanes, which read four ranges, read different banks
constexpr int AT_ONCE = 8;           // coefficients of each range that a thread fetches ahead

// Asks for a tile of each range of `length` coefficients, from `first` on; those from `count` on are zero.
__device__ void load(float (&tile)[RANGES][PITCH], const float* __restrict__ coefficients, int first, int length,
                     int count) {
#pragma unroll
  for (int round = 0; round < RANGES * TILE / (4 * THREADS); ++round) {
    const int i = 4 * (round * THREADS + threadIdx.x);
    const int at = i / TILE * length + first + i % TILE;
    const int left = min(max(count - at, 0), 4);
    copy_async<16>(&tile[i / TILE][i % TILE], coefficients + (left ? at : 0), 4 * left);
  }
}

struct Batch {
  float4 at[OWN][AT_ONCE / 4];
};

__device__ Batch fetch(const float (&tile)[RANGES][PITCH], int range, int from) {
  Batch batch;
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
#pragma unroll
    for (int i = 0; i < AT_ONCE / 4; ++i) {
      batch.at[own][i] = *reinterpret_cast<const float4*>(&tile[range + own][from + 4 * i]);
    }
  }
  return batch;
}

// One step of each chain: between two steps of a chain stand those of all others.
__device__ void horner(float (&value)[OWN][POINTS], const float (&x)[POINTS], float first, float second) {
#pragma unroll
  for (int i = 0; i < POINTS; ++i) value[0][i] = fmaf(value[0][i], x[i], first);
#pragma unroll
  for (int i = 0; i < POINTS; ++i) value[1][i] = fmaf(value[1][i], x[i], second);
}

__device__ void horner(float (&value)[OWN][POINTS], const float (&x)[POINTS], const Batch& batch) {
#pragma unroll
  for (int i = AT_ONCE / 4 - 1; i >= 0; --i) {
    horner(value, x, batch.at[0][i].w, batch.at[1][i].w);
    horner(value, x, batch.at[0][i].z, batch.at[1][i].z);
    horner(value, x, batch.at[0][i].y, batch.at[1][i].y);
    horner(value, x, batch.at[0][i].x, batch.at[1][i].x);
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
  __shared__ __align__(16) float tiles[2][RANGES][PITCH];
  const int64_t point = int64_t(blockIdx.x) * THREADS + threadIdx.x;  // it writes this, and helps with three more
  const int lane = threadIdx.x % POINTS;
  float x[POINTS], value[OWN][POINTS] = {};
#pragma unroll
  for (int i = 0; i < POINTS; ++i) x[i] = point - lane + i < n ? points[point - lane + i] : 0.0f;
  int tile = ceil_div(count, RANGES * TILE) - 1;
  const int length = (tile + 1) * TILE;  // of a range
  load(tiles[tile % 2], coefficients, tile * TILE, length, count);
  commit_copies();
  for (; tile >= 0; --tile) {
    if (tile > 0) load(tiles[(tile - 1) % 2], coefficients, (tile - 1) * TILE, length, count);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();  // this tile is there
    const auto& here = tiles[tile % 2];
    Batch next = fetch(here, OWN * lane, TILE - AT_ONCE);
#pragma unroll 4
    for (int from = TILE - AT_ONCE; from >= 0; from -= AT_ONCE) {
      const Batch batch = next;
      next = fetch(here, OWN * lane, max(from - AT_ONCE, 0));
      horner(value, x, batch);
    }
    __syncthreads();  // and may be overwritten
  }

#pragma unroll
  for (int i = 0; i < POINTS; ++i) {
    const double over = power(x[i], length);  // one range
    float sum = (value[0][i] + value[1][i] * over) * power(over, OWN * lane);
#pragma unroll
    for (int lanes = 1; lanes < POINTS; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (i == lane && point < n) out[point] = sum;
  }
}

extern "C" int evaluate(const float* coefficients, const float* points, float* out, int64_t count, int64_t n,
                        cudaStream_t stream) {
  if (count > 1 << 30) return cudaErrorInvalidValue;  // they are numbered by 32 bits
  polynomial<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(coefficients, points, out, count, n);
  return cudaGetLastError();
}
