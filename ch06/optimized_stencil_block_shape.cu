// The same blur in blocks of 8 x 32 threads, 32 x 32 elements: 32 rows need 40 to be read, and the rest comes from L1.
#include "kernel.cuh"

constexpr int WIDE = 8, TALL = 32;   // threads of a block; each has four columns of one row
constexpr int REACH = 4;             // rows above and below

// The binomial coefficients of 8 over 256, by the distance of the row.
__device__ constexpr float TAPS[REACH + 1] = {70 / 256.f, 56 / 256.f, 28 / 256.f, 8 / 256.f, 1 / 256.f};

template <int width>
struct alignas(4 * width) Piece {
  float at[width];
};

// Rows beyond the image count as zero. `columns` is a multiple of `width`.
template <int width>
__global__ void __launch_bounds__(WIDE* TALL)
    blur(const float* __restrict__ image, float* __restrict__ out, int rows, int columns) {
  const int column = (blockIdx.x * WIDE + threadIdx.x) * width, row = blockIdx.y * TALL + threadIdx.y;
  if (column >= columns || row >= rows) return;
  const int64_t own = int64_t(row) * columns + column;
  Piece<width> sum = {};
#pragma unroll
  for (int k = 2 * REACH; k >= 0; --k) {  // farthest first: in a block of many rows, the nearer ones are in L1 by then
    const int distance = (k + 1) / 2, from = k % 2 ? distance : -distance;
    if (unsigned(row + from) >= unsigned(rows)) continue;  // above or below the image
    const auto piece = *reinterpret_cast<const Piece<width>*>(image + own + from * int64_t(columns));
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] += TAPS[distance] * piece.at[i];
  }
  *reinterpret_cast<Piece<width>*>(out + own) = sum;
}

extern "C" int blur_rows(const float* image, float* out, int rows, int columns, cudaStream_t stream) {
  const int width = columns % 4 == 0 ? 4 : 1;  // rows that start between 16-byte boundaries are read float by float
  const dim3 grid(ceil_div(columns, WIDE * width), ceil_div(rows, TALL)), block(WIDE, TALL);
  if (width == 4) {
    blur<4><<<grid, block, 0, stream>>>(image, out, rows, columns);
  } else {
    blur<1><<<grid, block, 0, stream>>>(image, out, rows, columns);
  }
  return cudaGetLastError();
}
