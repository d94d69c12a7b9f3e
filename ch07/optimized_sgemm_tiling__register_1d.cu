// Each thread computes eight elements of a column: a value of b, once in a register, serves eight products.
#include "kernel.cuh"

constexpr int TILE = 64;   // rows and columns of the result, a block
constexpr int DEPTH = 8;   // of k, in shared memory at a time
constexpr int REUSE = 8;   // rows of a thread
constexpr int THREADS = TILE * TILE / REUSE;
static_assert(THREADS == TILE * DEPTH, "each thread fetches one value of each tile");

__global__ void __launch_bounds__(THREADS)
    product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  __shared__ float tile_a[TILE][DEPTH], tile_b[DEPTH][TILE];
  const int64_t top = int64_t(blockIdx.y) * TILE, left = int64_t(blockIdx.x) * TILE;
  const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;                 // column; which eight rows, and row of b
  const int a_row = threadIdx.x / DEPTH, a_column = threadIdx.x % DEPTH;  // what it fetches of a
  float sum[REUSE] = {};
  for (int64_t start = 0; start < k; start += DEPTH) {
    const bool inside_a = top + a_row < m && start + a_column < k, inside_b = start + y < k && left + x < n;
    tile_a[a_row][a_column] = inside_a ? a[(top + a_row) * k + start + a_column] : 0.0f;
    tile_b[y][x] = inside_b ? b[(start + y) * n + left + x] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      const float value = tile_b[i][x];
#pragma unroll
      for (int r = 0; r < REUSE; ++r) sum[r] += tile_a[y * REUSE + r][i] * value;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < REUSE; ++r) {
    const int64_t row = top + y * REUSE + r;
    if (row < m && left + x < n) out[row * n + left + x] = sum[r];
  }
}

extern "C" int sgemm(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  product<<<dim3(ceil_div(n, TILE), ceil_div(m, TILE)), THREADS, 0, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}
