// Each thread computes 8 x 8 elements: of 16 values, once in registers, it makes 64 products.
#include "kernel.cuh"

constexpr int TILE = 128;  // rows and columns of the result, a block
constexpr int DEPTH = 8;   // of k, in shared memory at a time
constexpr int REUSE = 8;   // rows and columns of a thread
constexpr int SIDE = TILE / REUSE;
constexpr int THREADS = SIDE * SIDE;

__global__ void __launch_bounds__(THREADS, 2)
    product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  __shared__ float tile_a[TILE][DEPTH], tile_b[DEPTH][TILE];
  const int64_t top = int64_t(blockIdx.y) * TILE, left = int64_t(blockIdx.x) * TILE;
  const int x = threadIdx.x % SIDE * REUSE, y = threadIdx.x / SIDE * REUSE;
  float sum[REUSE][REUSE] = {};
  const int a_row = threadIdx.x / DEPTH, a_column = threadIdx.x % DEPTH;  // what it fetches, and others below
  const int b_row = threadIdx.x / TILE, b_column = threadIdx.x % TILE;
  for (int64_t start = 0; start < k; start += DEPTH) {
#pragma unroll
    for (int r = a_row; r < TILE; r += THREADS / DEPTH) {
      const bool inside = top + r < m && start + a_column < k;
      tile_a[r][a_column] = inside ? a[(top + r) * k + start + a_column] : 0.0f;
    }
#pragma unroll
    for (int r = b_row; r < DEPTH; r += THREADS / TILE) {
      const bool inside = start + r < k && left + b_column < n;
      tile_b[r][b_column] = inside ? b[(start + r) * n + left + b_column] : 0.0f;
    }
    __syncthreads();
#pragma unroll 2  // more would fetch four depths of a at once, into 32 registers that are not there
    for (int i = 0; i < DEPTH; ++i) {
      float of_a[REUSE], of_b[REUSE];
#pragma unroll
      for (int r = 0; r < REUSE; ++r) of_a[r] = tile_a[y + r][i];
#pragma unroll
      for (int c = 0; c < REUSE; ++c) of_b[c] = tile_b[i][x + c];
#pragma unroll
      for (int r = 0; r < REUSE; ++r) {
#pragma unroll
        for (int c = 0; c < REUSE; ++c) sum[r][c] += of_a[r] * of_b[c];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < REUSE; ++r) {
#pragma unroll
    for (int c = 0; c < REUSE; ++c) {
      if (top + y + r < m && left + x + c < n) out[(top + y + r) * n + left + x + c] = sum[r][c];
    }
  }
}

extern "C" int sgemm(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  product<<<dim3(ceil_div(n, TILE), ceil_div(m, TILE)), THREADS, 0, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}
