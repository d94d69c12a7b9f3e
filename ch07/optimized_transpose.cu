// Transpose in 16-byte pieces: each thread turns a 4 x 4 block in its registers, and an XOR swizzle of the tile in
// shared memory spreads the pieces over all banks without padding.
#include "kernel.cuh"

constexpr int SIDE = 16;        // a block of 16 x 16 threads
constexpr int TILE = 4 * SIDE;  // does a tile of 64 x 64: runs of 256 bytes on both sides

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
__device__ void store(float* row, int64_t at, int64_t end, float4 piece) {
  if constexpr (aligned) {
    if (at < end) *reinterpret_cast<float4*>(row + at) = piece;
  } else {
    if (at + 0 < end) row[at + 0] = piece.x;
    if (at + 1 < end) row[at + 1] = piece.y;
    if (at + 2 < end) row[at + 2] = piece.z;
    if (at + 3 < end) row[at + 3] = piece.w;
  }
}

template <bool aligned>
__global__ void __launch_bounds__(SIDE* SIDE)
    transpose(const float* __restrict__ a, float* __restrict__ out, int64_t rows, int64_t columns) {
  __shared__ float4 tile[TILE][SIDE];  // rows of the result, in pieces
  // Blocks that run at the same time have neighbouring numbers: they write next to each other, along rows of the result.
  const int64_t left = int64_t(blockIdx.y) * TILE, top = int64_t(blockIdx.x) * TILE;
  const int x = threadIdx.x, y = threadIdx.y;

  float4 in[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = top + 4 * y + i;
    in[i] = load<aligned>(a + row * columns, left + 4 * x, row < rows ? columns : 0);
  }

  // Eight lanes share a cycle of 16-byte accesses. Here they write piece y of eight rows, 4 apart: unswizzled, the same
  // four banks. Piece p of row r therefore stands at p ^ (r / 4 % 8), which differs from lane to lane; below, where
  // they read eight pieces of one row, it only reorders them.
  const int place = y ^ (x % 8);
  tile[4 * x + 0][place] = {in[0].x, in[1].x, in[2].x, in[3].x};
  tile[4 * x + 1][place] = {in[0].y, in[1].y, in[2].y, in[3].y};
  tile[4 * x + 2][place] = {in[0].z, in[1].z, in[2].z, in[3].z};
  tile[4 * x + 3][place] = {in[0].w, in[1].w, in[2].w, in[3].w};
  __syncthreads();

#pragma unroll
  for (int r = y; r < TILE; r += SIDE) {
    store<aligned>(out + (left + r) * rows, top + 4 * x, left + r < columns ? rows : 0, tile[r][x ^ (r / 4 % 8)]);
  }
}

extern "C" int transpose_swizzled(const float* a, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 grid(ceil_div(rows, TILE), ceil_div(columns, TILE)), block(SIDE, SIDE);
  if (rows % 4 == 0 && columns % 4 == 0) {
    transpose<true><<<grid, block, 0, stream>>>(a, out, rows, columns);
  } else {  // rows that start between 16-byte boundaries are copied float by float
    transpose<false><<<grid, block, 0, stream>>>(a, out, rows, columns);
  }
  return cudaGetLastError();
}
