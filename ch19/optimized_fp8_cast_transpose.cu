// A tile is read once, cast and turned in registers, and leaves in whole lines of 128 bytes, both ways.
#include <cuda_fp8.h>

#include "kernel.cuh"

constexpr int SQUARE = 8;    // rows and columns of a thread: 16 bytes of each row as they come, 8 as they go
constexpr int ACROSS = 16;   // squares across a tile, and as many down: lines of 128 codes, both ways
constexpr int SIDE = SQUARE * ACROSS;
constexpr int THREADS = ACROSS * ACROSS;

// Column c of four rows of four bytes, for each c.
__device__ void turn(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t columns[4]) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  columns[0] = __byte_perm(ab_low, cd_low, 0x5410);
  columns[1] = __byte_perm(ab_low, cd_low, 0x7632);
  columns[2] = __byte_perm(ab_high, cd_high, 0x5410);
  columns[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// Two numbers of bf16, scaled and cast.
__device__ uint32_t cast_pair(uint32_t word, float scale) {
  const float2 scaled = {__uint_as_float(word << 16) * scale, __uint_as_float(word & 0xffff0000) * scale};
  return __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
}

// `aligned`: rows and columns are multiples of a square, so a piece of a row or a column is there or it is not.
template <bool aligned>
__device__ uint4 load_piece(const uint16_t* x, int64_t row, int column, int64_t rows, int columns) {
  uint4 piece = make_uint4(0, 0, 0, 0);
  if (row >= rows) return piece;
  if constexpr (aligned) {
    if (column < columns) piece = *reinterpret_cast<const uint4*>(x + row * columns + column);
  } else {
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < SQUARE; ++i) {
      if (column + i < columns) words[i / 2] |= uint32_t(x[row * columns + column + i]) << i % 2 * 16;
    }
    piece = make_uint4(words[0], words[1], words[2], words[3]);
  }
  return piece;
}

template <bool aligned>
__device__ void store_piece(uint8_t* out, uint2 piece, int64_t line, int place, int64_t lines, int length) {
  if (line >= lines) return;
  if constexpr (aligned) {
    if (place < length) *reinterpret_cast<uint2*>(out + line * length + place) = piece;
  } else {
    const uint32_t words[] = {piece.x, piece.y};
#pragma unroll
    for (int i = 0; i < SQUARE; ++i) {
      if (place + i < length) out[line * length + place + i] = words[i / 4] >> i % 4 * 8;
    }
  }
}

template <bool aligned>
__global__ void __launch_bounds__(THREADS, 4)
    cast_tile(const uint16_t* __restrict__ x, const float* __restrict__ scale, uint8_t* __restrict__ out,
              uint8_t* __restrict__ out_t, int* amax, int rows, int columns) {
  __shared__ uint2 turned[SIDE][ACROSS];  // a line for each column of the tile
  __shared__ uint32_t highest_of_warp[THREADS / 32];
  const int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;  // of the tile's corner
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;

  uint4 piece[SQUARE];
#pragma unroll
  for (int r = 0; r < SQUARE; ++r) {
    piece[r] = load_piece<aligned>(x, row + down * SQUARE + r, column + across * SQUARE, rows, columns);
  }
  const float by = *scale;
  uint32_t highest = 0;  // two magnitudes, which as numbers of 16 bits have the order of their values
  uint2 codes[SQUARE];
#pragma unroll
  for (int r = 0; r < SQUARE; ++r) {
    const uint32_t words[] = {piece[r].x, piece[r].y, piece[r].z, piece[r].w};
#pragma unroll
    for (uint32_t word : words) highest = __vmaxu2(highest, word & 0x7fff7fff);
    codes[r] = {cast_pair(words[0], by) | cast_pair(words[1], by) << 16,
                cast_pair(words[2], by) | cast_pair(words[3], by) << 16};
    store_piece<aligned>(out, codes[r], row + down * SQUARE + r, column + across * SQUARE, rows, columns);
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t upper[4], lower[4];
    auto word = [&](int r) { return half ? codes[r].y : codes[r].x; };
    turn(word(0), word(1), word(2), word(3), upper);
    turn(word(4), word(5), word(6), word(7), lower);
#pragma unroll
    for (int c = 0; c < 4; ++c) {  // where squares side by side write, and those below each other, are other banks
      turned[across * SQUARE + half * 4 + c][down ^ across] = make_uint2(upper[c], lower[c]);
    }
  }
  highest = __reduce_max_sync(~0u, max(highest & 0xffff, highest >> 16));
  if (threadIdx.x % 32 == 0) highest_of_warp[threadIdx.x / 32] = highest;
  __syncthreads();

#pragma unroll
  for (int k = 0; k < SQUARE; ++k) {
    const int line = k * ACROSS + down;
    const uint2 square = turned[line][across ^ line / SQUARE];
    store_piece<aligned>(out_t, square, column + line, row + across * SQUARE, columns, rows);
  }
  if (threadIdx.x < THREADS / 32) {
    highest = __reduce_max_sync((1u << THREADS / 32) - 1, highest_of_warp[threadIdx.x]);
    if (threadIdx.x == 0) atomicMax(amax, int(highest << 16));  // as fp32; of floats that are not negative
  }
}

// x [rows, columns]; out as x, out_t transposed, in codes of e4m3; amax is x's largest magnitude.
extern "C" int cast_transpose(const __nv_bfloat16* x, const float* scale, __nv_fp8_e4m3* out, __nv_fp8_e4m3* out_t,
                              float* amax, int rows, int columns, cudaStream_t stream) {
  TRY(cudaMemsetAsync(amax, 0, sizeof(float), stream));
  const dim3 tiles(ceil_div(columns, SIDE), ceil_div(rows, SIDE));
  const auto kernel = rows % SQUARE || columns % SQUARE ? cast_tile<false> : cast_tile<true>;
  kernel<<<tiles, THREADS, 0, stream>>>(reinterpret_cast<const uint16_t*>(x), scale, reinterpret_cast<uint8_t*>(out),
                                        reinterpret_cast<uint8_t*>(out_t), reinterpret_cast<int*>(amax), rows, columns);
  return cudaGetLastError();
}
