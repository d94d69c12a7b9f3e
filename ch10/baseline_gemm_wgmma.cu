// Products by warps, as on Ampere: cp.async fills a ring of tiles, from which ldmatrix and mma.sync take them.
#include "ampere.cuh"

constexpr int TILE = 128;     // rows and columns of the result, a block
constexpr int BAND = 16;      // rows of tiles
constexpr int WARP = 64;      // rows and columns of the result, a warp
constexpr int THREADS = 128;  // 2 x 2 warps
constexpr int ROW = 64;       // elements of k in a stage: 128 bytes, eight pieces of 16
constexpr int STAGES = 3;
constexpr int PIECE = 8;  // elements

struct Shared {
  bf16 a[STAGES][TILE * ROW];
  bf16 b[STAGES][TILE * ROW];
};

// Where a piece of a row stands: eight rows of one piece, which ldmatrix reads at once, lie in different banks.
__device__ int place(int row, int piece) { return row * ROW + (piece ^ row % 8) * PIECE; }

// Start copying 64 elements of 128 rows; beyond the matrix [rows, k] there are zeros.
__device__ void load_tile(bf16* tile, const bf16* matrix, int64_t row, int64_t column, int64_t rows, int64_t k) {
#pragma unroll
  for (int i = threadIdx.x; i < TILE * (ROW / PIECE); i += THREADS) {
    const int r = i / (ROW / PIECE), piece = i % (ROW / PIECE);
    const bool inside = row + r < rows && column + piece * PIECE < k;
    const bf16* from = inside ? matrix + (row + r) * k + column + piece * PIECE : matrix;
    copy_async<16>(tile + place(r, piece), from, inside ? 16 : 0);
  }
}

__global__ void __launch_bounds__(THREADS)
    product(const bf16* __restrict__ a, const bf16* __restrict__ b, bf16* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int64_t top = int64_t(blockIdx.z * BAND + blockIdx.x) * TILE, left = int64_t(blockIdx.y) * TILE;
  if (top >= m) return;  // the last band may have fewer rows
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_top = warp / 2 * WARP, warp_left = warp % 2 * WARP;
  const int rows = ceil_div(k, ROW);
  const auto load = [&](int i) {  // a group for each stage, empty at the end, so that they can be counted
    if (i < rows) {
      load_tile(shared.a[i % STAGES], a, top, int64_t(i) * ROW, m, k);
      load_tile(shared.b[i % STAGES], b, left, int64_t(i) * ROW, n, k);
    }
    commit_copies();
  };
  for (int i = 0; i < STAGES - 1; ++i) load(i);

  float sum[WARP / 16][WARP / 8][4] = {};
  for (int i = 0; i < rows; ++i) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();  // this stage is here, and all warps are done with the one before, which is filled next
    load(i + STAGES - 1);
    const bf16 *tile_a = shared.a[i % STAGES], *tile_b = shared.b[i % STAGES];
#pragma unroll
    for (int step = 0; step < ROW / 16; ++step) {
      uint32_t rows_a[WARP / 16][4], rows_b[WARP / 16][4];
#pragma unroll
      for (int j = 0; j < WARP / 16; ++j) {
        load_matrices(rows_a[j], tile_a + place(warp_top + 16 * j + lane % 16, 2 * step + lane / 16));
        const int row = warp_left + 16 * j + lane / 16 * 8 + lane % 8;
        load_matrices(rows_b[j], tile_b + place(row, 2 * step + lane / 8 % 2));
      }
#pragma unroll
      for (int y = 0; y < WARP / 16; ++y) {
#pragma unroll
        for (int x = 0; x < WARP / 8; ++x) multiply(sum[y][x], rows_a[y], rows_b[x / 2] + x % 2 * 2);
      }
    }
  }

#pragma unroll
  for (int y = 0; y < WARP / 16; ++y) {
#pragma unroll
    for (int x = 0; x < WARP / 8; ++x) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = top + warp_top + 16 * y + lane / 4 + 8 * i;
        const int64_t column = left + warp_left + 8 * x + lane % 4 * 2;
        if (row < m && column < n) {
          const auto pair = __floats2bfloat162_rn(sum[y][x][2 * i], sum[y][x][2 * i + 1]);
          *reinterpret_cast<__nv_bfloat162*>(out + row * n + column) = pair;
        }
      }
    }
  }
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  if (n % PIECE || k % PIECE) return cudaErrorInvalidValue;  // rows must begin at multiples of 16 bytes
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  // Blocks begin in the order of x, y, z: down a band of BAND rows of tiles, column by column, and then down the next.
  // What is in work at one time is nearly square: it reads few rows of a and b, which the L2 cache still holds.
  const dim3 grid(BAND, ceil_div(n, TILE), ceil_div(m, BAND * TILE));
  product<<<grid, THREADS, BYTES, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}
