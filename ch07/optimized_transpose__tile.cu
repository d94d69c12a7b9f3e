// Transpose through a shared-memory tile: both sides run along rows, but reading a column of the tile hits one bank.
#include "kernel.cuh"

constexpr int TILE = 32;  // a block of 32 x 8 threads does a tile of 32 x 32
constexpr int STRIPE = 8;

__global__ void transpose(const float* __restrict__ a, float* __restrict__ out, int64_t rows, int64_t columns) {
  __shared__ float tile[TILE][TILE];  // a row is 32 banks, so a column is one bank 32 times
  const int64_t left = int64_t(blockIdx.x) * TILE, top = int64_t(blockIdx.y) * TILE;
  const int x = threadIdx.x, y = threadIdx.y;
#pragma unroll
  for (int i = y; i < TILE; i += STRIPE) {
    if (top + i < rows && left + x < columns) tile[i][x] = a[(top + i) * columns + left + x];
  }
  __syncthreads();
#pragma unroll
  for (int i = y; i < TILE; i += STRIPE) {
    if (left + i < columns && top + x < rows) out[(left + i) * rows + top + x] = tile[x][i];
  }
}

extern "C" int transpose_tile(const float* a, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 grid(ceil_div(columns, TILE), ceil_div(rows, TILE));
  transpose<<<grid, dim3(TILE, STRIPE), 0, stream>>>(a, out, rows, columns);
  return cudaGetLastError();
}
