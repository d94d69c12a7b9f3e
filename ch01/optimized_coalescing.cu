// Sum the rows of a matrix with a warp for every two rows: its lanes read neighbouring pieces of 16 bytes, and 2 KiB of
// whole lines are in flight before the first addition waits for one.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int ROWS = 2;   // of a warp, at the same time
constexpr int LOADS = 2;  // in flight per thread and row

__device__ float sum_of(float piece) { return piece; }
__device__ float sum_of(float4 piece) { return (piece.x + piece.y) + (piece.z + piece.w); }

// Rows of `length` pieces, each a float or a float4.
template <typename Piece>
__global__ void __launch_bounds__(THREADS)
    sum_rows(const Piece* __restrict__ a, float* __restrict__ out, int64_t rows, int64_t length) {
  const int lane = threadIdx.x % 32;
  const int64_t first = (int64_t(blockIdx.x) * WARPS + threadIdx.x / 32) * ROWS;
  if (first >= rows) return;  // all lanes or none: they have the same rows
  const Piece* next[ROWS];    // the lane's next piece of each row
  float sum[ROWS] = {};
#pragma unroll
  for (int r = 0; r < ROWS; ++r) next[r] = a + min(first + r, rows - 1) * length + lane;  // past the end, the last row

  int64_t left = length - lane;  // pieces from the lane's next one to the end of the row
#pragma unroll 1
  for (; left > (LOADS - 1) * 32; left -= LOADS * 32) {
    Piece piece[ROWS][LOADS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int k = 0; k < LOADS; ++k) piece[r][k] = next[r][32 * k];
      next[r] += LOADS * 32;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int k = 0; k < LOADS; ++k) sum[r] += sum_of(piece[r][k]);
    }
  }
#pragma unroll 1
  for (; left > 0; left -= 32) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sum[r] += sum_of(*next[r]), next[r] += 32;
  }

  __syncwarp();  // the lanes may have left the loops one after the other
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sum[r] += __shfl_down_sync(~0u, sum[r], half);  // in lane 0
    if (lane == 0 && first + r < rows) out[first + r] = sum[r];
  }
}

extern "C" int sum_by_warps(const float* a, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const int64_t blocks = ceil_div(rows, WARPS * ROWS);
  if (columns % 4 == 0) {
    sum_rows<<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(a), out, rows, columns / 4);
  } else {  // rows that start between 16-byte boundaries are read float by float
    sum_rows<<<blocks, THREADS, 0, stream>>>(a, out, rows, columns);
  }
  return cudaGetLastError();
}
