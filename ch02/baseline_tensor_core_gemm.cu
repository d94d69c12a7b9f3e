// Every product is a scalar FMA of fp32: bf16 is widened on its way to shared memory, a thread sums 8 x 8 elements.
#include "kernel.cuh"

constexpr int TILE = 128;  // rows and columns of the result, a block
constexpr int DEPTH = 16;  // of k, in shared memory at a time
constexpr int SIDE = 16;   // threads along a side of the tile; each has two groups of four rows and of four columns
constexpr int THREADS = SIDE * SIDE;
constexpr int PIECE = 8;  // elements of 16 bytes
constexpr int PAD = 4;    // floats: rows still begin at multiples of 16 bytes

// Copy 16 elements of 128 rows, transposed; beyond the matrix [rows, k] there are zeros.
__device__ void load_tile(float (&tile)[DEPTH][TILE + PAD], const __nv_bfloat16* matrix, int64_t row, int64_t column,
                          int64_t rows, int64_t k) {
  static_assert(TILE * DEPTH == THREADS * PIECE);
  const int r = threadIdx.x / 2, first = threadIdx.x % 2 * PIECE;
  union {
    uint4 words;
    __nv_bfloat162 pairs[PIECE / 2];
  } piece = {};
  if (row + r < rows && column + first < k) {
    piece.words = *reinterpret_cast<const uint4*>(matrix + (row + r) * k + column + first);
  }
#pragma unroll
  for (int i = 0; i < PIECE / 2; ++i) {
    const float2 pair = __bfloat1622float2(piece.pairs[i]);
    tile[first + 2 * i][r] = pair.x;
    tile[first + 2 * i + 1][r] = pair.y;
  }
}

// Eight values of a row of the tile: four here, and four half a tile further on.
__device__ void fetch(float (&to)[8], const float* from) {
  const float4 low = *reinterpret_cast<const float4*>(from), high = *reinterpret_cast<const float4*>(from + TILE / 2);
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

__global__ void __launch_bounds__(THREADS, 2)
    product(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, __nv_bfloat16* __restrict__ out,
            int64_t m, int64_t n, int64_t k) {
  __shared__ __align__(16) float tile_a[DEPTH][TILE + PAD], tile_b[DEPTH][TILE + PAD];
  const int64_t top = int64_t(blockIdx.y) * TILE, left = int64_t(blockIdx.x) * TILE;
  const int x = threadIdx.x % SIDE * 4, y = threadIdx.x / SIDE * 4;
  float sum[8][8] = {};
  for (int64_t start = 0; start < k; start += DEPTH) {
    load_tile(tile_a, a, top, start, m, k);
    load_tile(tile_b, b, left, start, n, k);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      float of_a[8], of_b[8];
      fetch(of_a, &tile_a[i][y]);
      fetch(of_b, &tile_b[i][x]);
#pragma unroll
      for (int r = 0; r < 8; ++r) {
#pragma unroll
        for (int c = 0; c < 8; ++c) sum[r][c] += of_a[r] * of_b[c];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const int64_t row = top + y + r / 4 * (TILE / 2) + r % 4;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int64_t column = left + x + c / 4 * (TILE / 2) + c % 4;
      if (row < m && column < n) out[row * n + column] = __float2bfloat16(sum[r][c]);
    }
  }
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  if (k % PIECE) return cudaErrorInvalidValue;  // rows of a and b must begin at multiples of 16 bytes
  product<<<dim3(ceil_div(n, TILE), ceil_div(m, TILE)), THREADS, 0, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}
