// A block keeps a tile of each input in shared memory, so a value is fetched once for 32 threads that need it.
#include "kernel.cuh"

constexpr int SIDE = 32;  // of the tiles: a block of 32 x 32 threads, an element each

__global__ void product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int64_t m,
                        int64_t n, int64_t k) {
  __shared__ float tile_a[SIDE][SIDE], tile_b[SIDE][SIDE];
  const int x = threadIdx.x, y = threadIdx.y;
  const int64_t row = int64_t(blockIdx.y) * SIDE + y, column = int64_t(blockIdx.x) * SIDE + x;
  float sum = 0.0f;
  for (int64_t start = 0; start < k; start += SIDE) {
    tile_a[y][x] = row < m && start + x < k ? a[row * k + start + x] : 0.0f;
    tile_b[y][x] = start + y < k && column < n ? b[(start + y) * n + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SIDE; ++i) sum += tile_a[y][i] * tile_b[i][x];
    __syncthreads();
  }
  if (row < m && column < n) out[row * n + column] = sum;
}

extern "C" int sgemm(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  product<<<dim3(ceil_div(n, SIDE), ceil_div(m, SIDE)), dim3(SIDE, SIDE), 0, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}
