// Scale rows of an odd length in 16-byte pieces from the first 16-byte boundary on; up to seven elements stand before
// it, and up to seven after the last piece.
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int IN_FLIGHT = 4;  // pieces of a thread: 128 x 4 are a row of the bench size

__device__ __nv_bfloat16 scaled(__nv_bfloat16 value, float scale) {
  return __float2bfloat16(scale * __bfloat162float(value));
}

__device__ uint32_t scaled(uint32_t pair, float scale) {
  const float2 value = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  const __nv_bfloat162 result = __floats2bfloat162_rn(scale * value.x, scale * value.y);
  return reinterpret_cast<const uint32_t&>(result);
}

// A piece is eight elements in a uint4, which the compiler moves in one access.
__device__ uint4 scaled(uint4 piece, float scale) {
  return {scaled(piece.x, scale), scaled(piece.y, scale), scaled(piece.z, scale), scaled(piece.w, scale)};
}

__global__ void __launch_bounds__(THREADS)
    scale_row(const __nv_bfloat16* __restrict__ x, const float* __restrict__ scales, __nv_bfloat16* __restrict__ out,
              int64_t columns) {
  const int64_t row = blockIdx.x;
  const float scale = scales[row];
  const __nv_bfloat16* from = x + row * columns;
  __nv_bfloat16* to = out + row * columns;
  // Both arrays begin at a boundary, so each row stands to it in one as in the other.
  const int head = int(min(-row * columns & 7, columns));
  const int pieces = int(columns - head) / 8, tail = head + 8 * pieces;

  // The first warp takes the elements before the first piece, the second those after the last: one a lane.
  const int thread = threadIdx.x, lone = thread < 32 ? thread : tail + thread - 32;
  const bool has_lone = thread < 32 ? lone < head : lone < columns;
  __nv_bfloat16 element;
  if (has_lone) element = from[lone];

  const auto* from_pieces = reinterpret_cast<const uint4*>(from + head);
  auto* to_pieces = reinterpret_cast<uint4*>(to + head);
#pragma unroll 1
  for (int at = thread; at < pieces; at += IN_FLIGHT * THREADS) {
    uint4 piece[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; ++i) {
      if (at + i * THREADS < pieces) piece[i] = from_pieces[at + i * THREADS];
    }
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; ++i) {
      if (at + i * THREADS < pieces) to_pieces[at + i * THREADS] = scaled(piece[i], scale);
    }
  }
  if (has_lone) to[lone] = scaled(element, scale);
}

extern "C" int scale_rows(const __nv_bfloat16* x, const float* scales, __nv_bfloat16* out, int64_t rows,
                          int64_t columns, cudaStream_t stream) {
  scale_row<<<rows, THREADS, 0, stream>>>(x, scales, out, columns);
  return cudaGetLastError();
}
