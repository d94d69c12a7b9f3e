// 16 bytes an access, in global and in shared memory: the tile of a is transposed on the way so that it allows it.
#include "kernel.cuh"

constexpr int TILE = 128;  // rows and columns of the result, a block
constexpr int DEPTH = 8;   // of k, in shared memory at a time
constexpr int THREADS = 256;
constexpr int PAD = 4;  // floats: rows of the transposed tile stay at multiples of 16 bytes, and its writes spread
constexpr int SIDE = 16;  // 16 x 16 threads, each with 2 x 2 squares of 4 x 4 elements, half a tile apart

// Four neighbours of a row; those at `end` and beyond are zero. `aligned`: rows are whole pieces, so one access does.
template <bool aligned>
__device__ float4 load(const float* row, int64_t at, int64_t end) {
  if constexpr (aligned) return at < end ? *reinterpret_cast<const float4*>(row + at) : float4{};
  float4 piece{};
  if (at + 0 < end) piece.x = row[at + 0];
  if (at + 1 < end) piece.y = row[at + 1];
  if (at + 2 < end) piece.z = row[at + 2];
  if (at + 3 < end) piece.w = row[at + 3];
  return piece;
}

template <bool aligned>
__device__ void store(float* row, int64_t at, int64_t end, const float* piece) {
  if constexpr (aligned) {
    if (at < end) *reinterpret_cast<float4*>(row + at) = {piece[0], piece[1], piece[2], piece[3]};
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (at + i < end) row[at + i] = piece[i];
    }
  }
}

// Four floats of shared memory in one access.
__device__ void fetch(float* to, const float* from) {
  const float4 piece = *reinterpret_cast<const float4*>(from);
  to[0] = piece.x, to[1] = piece.y, to[2] = piece.z, to[3] = piece.w;
}

template <bool aligned>
__global__ void __launch_bounds__(THREADS, 2)
    product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  __shared__ __align__(16) float tile_a[DEPTH][TILE + PAD];  // transposed, so that rows of a are neighbours
  __shared__ __align__(16) float tile_b[DEPTH][TILE];
  const int64_t top = int64_t(blockIdx.y) * TILE, left = int64_t(blockIdx.x) * TILE;
  const int thread = threadIdx.x;
  const int a_row = thread / (DEPTH / 4), a_column = thread % (DEPTH / 4) * 4;  // what it fetches: a piece of each
  const int b_row = thread / (TILE / 4), b_column = thread % (TILE / 4) * 4;
  const int x = thread % SIDE * 4, y = thread / SIDE * 4;
  float sum[8][8] = {};
  for (int64_t start = 0; start < k; start += DEPTH) {
    const float4 piece = load<aligned>(a + (top + a_row) * k, start + a_column, top + a_row < m ? k : 0);
    tile_a[a_column + 0][a_row] = piece.x;
    tile_a[a_column + 1][a_row] = piece.y;
    tile_a[a_column + 2][a_row] = piece.z;
    tile_a[a_column + 3][a_row] = piece.w;
    *reinterpret_cast<float4*>(&tile_b[b_row][b_column]) =
        load<aligned>(b + (start + b_row) * n, left + b_column, start + b_row < k ? n : 0);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      float of_a[8], of_b[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fetch(of_a + 4 * half, &tile_a[i][y + half * (TILE / 2)]);
        fetch(of_b + 4 * half, &tile_b[i][x + half * (TILE / 2)]);
      }
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
    for (int half = 0; half < 2; ++half) {
      store<aligned>(out + row * n, left + x + half * (TILE / 2), row < m ? n : 0, sum[r] + 4 * half);
    }
  }
}

extern "C" int sgemm(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  const dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
  if (n % 4 == 0 && k % 4 == 0) {
    product<true><<<grid, THREADS, 0, stream>>>(a, b, out, m, n, k);
  } else {  // rows that start between 16-byte boundaries are copied float by float
    product<false><<<grid, THREADS, 0, stream>>>(a, b, out, m, n, k);
  }
  return cudaGetLastError();
}
