// Scale rows of an odd length as one long row: a block takes the next aligned stretch of the array, in 16-byte pieces. A
// thread follows in which row its piece lies, and whether the row ends in it.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int IN_FLIGHT = 2;  // pieces of a thread
constexpr int PIECE = 8;      // elements
constexpr int STRIDE = THREADS * PIECE;

// Where an element lies.
struct Place {
  int64_t row, column;
};

__device__ Place further(Place place, int64_t elements, int64_t columns) {
  place.column += elements;
  while (place.column >= columns) place.column -= columns, ++place.row;
  return place;
}

__device__ uint32_t scaled(uint32_t pair, float first, float second) {
  const float2 value = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  const __nv_bfloat162 result = __floats2bfloat162_rn(first * value.x, second * value.y);
  return reinterpret_cast<const uint32_t&>(result);
}

__device__ uint4 scaled(uint4 piece, float scale) {
  return {scaled(piece.x, scale, scale), scaled(piece.y, scale, scale), scaled(piece.z, scale, scale),
          scaled(piece.w, scale, scale)};
}

// The first `left` elements end a row, and the others begin the next.
__device__ uint4 scaled(uint4 piece, float scale, float next, int left) {
  const auto of = [&](int i) { return i < left ? scale : next; };
  return {scaled(piece.x, of(0), of(1)), scaled(piece.y, of(2), of(3)), scaled(piece.z, of(4), of(5)),
          scaled(piece.w, of(6), of(7))};
}

// The elements from `at` to `end`, one by one, which may be of several rows.
__device__ __noinline__ void scale_each(const __nv_bfloat16* x, const float* scales, __nv_bfloat16* out, Place place,
                                        int64_t columns, int64_t at, int64_t end) {
  for (; at < end; ++at, place = further(place, 1, columns)) {
    out[at] = __float2bfloat16(scales[place.row] * __bfloat162float(x[at]));
  }
}

__global__ void __launch_bounds__(THREADS)
    scale_stretch(const __nv_bfloat16* __restrict__ x, const float* __restrict__ scales,
                  __nv_bfloat16* __restrict__ out, int64_t n, int64_t columns) {
  const int64_t begin = int64_t(blockIdx.x) * IN_FLIGHT * STRIDE, first = begin + threadIdx.x * PIECE;
  uint4 piece[IN_FLIGHT];
#pragma unroll
  for (int i = 0; i < IN_FLIGHT; ++i) {
    if (first + i * STRIDE + PIECE <= n) piece[i] = *reinterpret_cast<const uint4*>(x + first + i * STRIDE);
  }
  const int64_t row = n >> 32 ? begin / columns : uint32_t(begin) / uint32_t(columns);
  Place place = further({row, begin - row * columns}, threadIdx.x * PIECE, columns);
#pragma unroll
  for (int i = 0; i < IN_FLIGHT; ++i) {
    const int64_t at = first + i * STRIDE;
    if (at + PIECE <= n && columns >= PIECE) {
      const float scale = scales[place.row];
      const int64_t left = columns - place.column;
      const uint4 result =
          left >= PIECE ? scaled(piece[i], scale) : scaled(piece[i], scale, scales[place.row + 1], int(left));
      *reinterpret_cast<uint4*>(out + at) = result;
    } else if (at < n) {
      scale_each(x, scales, out, place, columns, at, min(at + PIECE, n));
    }
    if (i + 1 < IN_FLIGHT) place = further(place, STRIDE, columns);
  }
}

extern "C" int scale_rows(const __nv_bfloat16* x, const float* scales, __nv_bfloat16* out, int64_t rows,
                          int64_t columns, cudaStream_t stream) {
  const int64_t n = rows * columns;
  scale_stretch<<<ceil_div(n, IN_FLIGHT * STRIDE), THREADS, 0, stream>>>(x, scales, out, n, columns);
  return cudaGetLastError();
}
