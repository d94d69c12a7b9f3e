// One buffer: load a stage of both tiles, wait for it, multiply, wait for all warps, load the next.
#include "ampere.cuh"

constexpr int TILE_M = 256, TILE_N = 128;  // of the result, a block
constexpr int WARP = 64;                   // rows and columns of the result, a warp
constexpr int THREADS = 256;               // 4 x 2 warps
constexpr int BAND = 8;                    // rows of tiles
constexpr int PIECE = 8;                   // elements: 16 bytes
constexpr int ROW = 32;                    // elements of k in a stage: four pieces
constexpr int PITCH = ROW + PIECE;         // elements from row to row in shared memory

struct Shared {
  bf16 a[TILE_M * PITCH];
  bf16 b[TILE_N * PITCH];
};

// Where a piece of a row stands. Padding by a piece spreads what a warp reads at once over all banks.
__device__ int place(int row, int piece) { return row * PITCH + piece * PIECE; }

// Copy 32 elements of `height` rows, by way of registers; beyond the matrix [rows, k] there are zeros.
template <int height>
__device__ void load_tile(bf16* tile, const bf16* matrix, int64_t row, int64_t column, int64_t rows, int64_t k) {
  constexpr int COUNT = height * (ROW / PIECE) / THREADS;
  uint4 kept[COUNT];  // all loads are on their way before the first store waits for one
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int r = (i * THREADS + threadIdx.x) / (ROW / PIECE), piece = threadIdx.x % (ROW / PIECE);
    const bool inside = row + r < rows && column + piece * PIECE < k;
    const bf16* from = matrix + (row + r) * k + column + piece * PIECE;
    kept[i] = inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int r = (i * THREADS + threadIdx.x) / (ROW / PIECE), piece = threadIdx.x % (ROW / PIECE);
    *reinterpret_cast<uint4*>(tile + place(r, piece)) = kept[i];
  }
}

__device__ uint32_t two_of(const bf16* tile, int row, int column) {
  return *reinterpret_cast<const uint32_t*>(tile + place(row, column / PIECE) + column % PIECE);
}

// What mma.sync wants of 64 rows of a and of b, 16 elements of k: lane 4 r + c holds, of row r of each 8, the pair 2 c.
__device__ void load_fragments(uint32_t (&of_a)[WARP / 16][4], uint32_t (&of_b)[WARP / 8][2], const bf16* a,
                               const bf16* b, int row_a, int row_b, int step) {
  const int row = threadIdx.x % 32 / 4, column = step * 16 + threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < WARP / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) of_a[j][i] = two_of(a, row_a + 16 * j + row + i % 2 * 8, column + i / 2 * 8);
  }
#pragma unroll
  for (int j = 0; j < WARP / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) of_b[j][i] = two_of(b, row_b + 8 * j + row, column + i * 8);
  }
}

__global__ void __launch_bounds__(THREADS)
    product(const bf16* __restrict__ a, const bf16* __restrict__ b, bf16* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  // Tiles are taken down a band of BAND rows, column by column: those in work at one time share rows in the L2 cache.
  const int across = ceil_div(n, TILE_N), down = ceil_div(m, TILE_M);
  const int first = blockIdx.x / (BAND * across) * BAND, rest = blockIdx.x % (BAND * across);
  const int height = min(BAND, down - first);
  const int64_t top = int64_t(first + rest % height) * TILE_M, left = int64_t(rest / height) * TILE_N;
  const int warp = threadIdx.x / 32, row_a = warp / 2 * WARP, row_b = warp % 2 * WARP;
  const int rows = ceil_div(k, ROW);
  float sum[WARP / 16][WARP / 8][4] = {};

  for (int i = 0; i < rows; ++i) {
    load_tile<TILE_M>(shared.a, a, top, int64_t(i) * ROW, m, k);
    load_tile<TILE_N>(shared.b, b, left, int64_t(i) * ROW, n, k);
    __syncthreads();  // the tiles are here
#pragma unroll
    for (int step = 0; step < ROW / 16; ++step) {
      uint32_t of_a[WARP / 16][4], of_b[WARP / 8][2];
      load_fragments(of_a, of_b, shared.a, shared.b, row_a, row_b, step);
#pragma unroll
      for (int y = 0; y < WARP / 16; ++y) {
#pragma unroll
        for (int x = 0; x < WARP / 8; ++x) multiply(sum[y][x], of_a[y], of_b[x]);
      }
    }
    __syncthreads();  // all warps are done with them
  }

#pragma unroll
  for (int y = 0; y < WARP / 16; ++y) {
#pragma unroll
    for (int x = 0; x < WARP / 8; ++x) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = top + row_a + 16 * y + threadIdx.x % 32 / 4 + 8 * i;
        const int64_t column = left + row_b + 8 * x + threadIdx.x % 4 * 2;
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
  product<<<ceil_div(m, TILE_M) * ceil_div(n, TILE_N), THREADS, BYTES, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}
