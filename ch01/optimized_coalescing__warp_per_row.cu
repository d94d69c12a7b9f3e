// Sum the rows of a matrix with one warp a row: its lanes read neighbouring floats and add up their sums by shuffles.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

__global__ void sum_rows(const float* __restrict__ a, float* __restrict__ out, int64_t rows, int64_t columns) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (row >= rows) return;  // all lanes or none: they have one row
  const float* own = a + row * columns;
  float sum = 0.0f;
#pragma unroll 8  // eight loads in flight per thread
  for (int64_t column = lane; column < columns; column += 32) sum += own[column];
#pragma unroll
  for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(~0u, sum, half);
  if (lane == 0) out[row] = sum;
}

extern "C" int sum_by_warps(const float* a, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  sum_rows<<<ceil_div(rows, WARPS), THREADS, 0, stream>>>(a, out, rows, columns);
  return cudaGetLastError();
}
