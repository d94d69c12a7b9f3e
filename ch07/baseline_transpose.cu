// Transpose straight from global memory to global memory: reads run along rows, writes jump a whole row apart.
#include "kernel.cuh"

constexpr int TILE = 32;  // a block of 32 x 8 threads does a tile of 32 x 32
constexpr int STRIPE = 8;

__global__ void transpose(const float* __restrict__ a, float* __restrict__ out, int64_t rows, int64_t columns) {
  const int64_t column = int64_t(blockIdx.x) * TILE + threadIdx.x;
  const int64_t row = int64_t(blockIdx.y) * TILE + threadIdx.y;
#pragma unroll
  for (int i = 0; i < TILE; i += STRIPE) {
    if (row + i < rows && column < columns) out[column * rows + row + i] = a[(row + i) * columns + column];
  }
}

extern "C" int transpose_naive(const float* a, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 grid(ceil_div(columns, TILE), ceil_div(rows, TILE));
  transpose<<<grid, dim3(TILE, STRIPE), 0, stream>>>(a, out, rows, columns);
  return cudaGetLastError();
}
