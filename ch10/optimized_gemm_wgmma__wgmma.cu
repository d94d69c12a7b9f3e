// Tensor cores read both tiles from shared memory: a warpgroup of 128 threads starts 64 x 128 x 16 products and waits.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 128;  // of the result, a block; two warpgroups, 64 rows each
constexpr int THREADS = 2 * GROUP_THREADS;
constexpr int PIECE = 8;  // elements of 16 bytes
constexpr int BAND = 16;  // rows of tiles

// Copy `tile_rows` rows of 64 elements into the swizzled tile; beyond the matrix [rows, k] there are zeros.
template <int tile_rows>
__device__ void load_tile(bf16* tile, const bf16* matrix, int64_t row, int64_t column, int64_t rows, int64_t k) {
#pragma unroll
  for (int i = threadIdx.x; i < tile_rows * (ROW / PIECE); i += THREADS) {
    const int r = i / (ROW / PIECE), piece = i % (ROW / PIECE);
    const bool inside = row + r < rows && column + piece * PIECE < k;
    const bf16* from = matrix + (row + r) * k + column + piece * PIECE;
    const uint4 value = inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
    *reinterpret_cast<uint4*>(reinterpret_cast<char*>(tile) + swizzled(r, piece)) = value;
  }
}

__global__ void __launch_bounds__(THREADS)
    product(const bf16* __restrict__ a, const bf16* __restrict__ b, bf16* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  __shared__ __align__(1024) bf16 tile_a[TILE_M * ROW];
  __shared__ __align__(1024) bf16 tile_b[TILE_N * ROW];
  const int64_t top = int64_t(blockIdx.z * BAND + blockIdx.x) * TILE_M, left = int64_t(blockIdx.y) * TILE_N;
  if (top >= m) return;  // the last band may have fewer rows
  const int group = group_of_thread();
  float sum[TILE_N / 2] = {};
  for (int64_t column = 0; column < k; column += ROW) {
    load_tile<TILE_M>(tile_a, a, top, column, m, k);
    load_tile<TILE_N>(tile_b, b, left, column, n, k);
    publish_tile();
    __syncthreads();
    multiply_row(sum, tile_a + group * 64 * ROW, tile_b);
    finish_products(sum);
    __syncthreads();  // both warpgroups have read the tiles
  }
  store_sums(sum, out, top + group * 64, left, m, n);
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  if (n % PIECE || k % PIECE) return cudaErrorInvalidValue;  // rows must begin at multiples of 16 bytes
  // Blocks begin in the order of x, y, z: down a band of BAND rows of tiles, column by column, and then down the next.
  // What is in work at one time is nearly square: it reads few rows of a and b, which the L2 cache still holds.
  const dim3 grid(BAND, ceil_div(n, TILE_N), ceil_div(m, BAND * TILE_M));
  product<<<grid, THREADS, 0, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}
