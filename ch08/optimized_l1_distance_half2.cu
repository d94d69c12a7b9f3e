// Manhattan distances by |a - b| = 2 max(a - b, 0) - (a - b): one packed instruction makes two terms max(a - b, 0), which
// tensor cores add up in fp32 as a product with a column of ones. Sums of a and of b are such products too.
// spills: sums and a part of the rows fill 128 registers, of which four blocks leave no more: 60 bytes, elsewhere to 252
#include "ampere.cuh"

constexpr int MOST = 128;                 // numbers of a vector; shorter ones end in zeros
constexpr int PIECES = MOST / 8;          // of 16 bytes
constexpr int ROWS = 128, COLUMNS = 64;   // of a block
constexpr int THREADS = 128;              // a warp has 64 rows and 32 columns
constexpr int TALL = 4, WIDE = 4;         // tiles of a warp, 16 rows by 8 columns each
constexpr uint32_t ONES = 0x3C003C00, HALVES = 0x38003800;  // pairs of fp16

using Vector = uint4[PIECES];  // in shared memory

// Where piece `piece` of a vector stands: of two neighbours, the same piece lies in other banks.
__device__ __forceinline__ int place(int vector, int piece) { return piece ^ vector % 2 * 4; }

// Vectors from `first` on, and zeros behind their ends and behind the last. A thread copies the same piece of each eighth.
template <bool ALIGNED, int COUNT>
__device__ __forceinline__ void fill(Vector (&tile)[COUNT], const __half* __restrict__ from, int64_t first,
                                     int64_t vectors, int width) {
  const int vector = threadIdx.x / PIECES, piece = threadIdx.x % PIECES, left = width - 8 * piece;
  const int there = left > 0 ? int(vectors - first < COUNT ? vectors - first : COUNT) : 0;
  const __half* own = from + (first + vector) * width + 8 * piece;
  uint4* const to = &tile[vector][place(vector, piece)];
#pragma unroll 8
  for (int i = 0; i < COUNT; i += THREADS / PIECES, own += THREADS / PIECES * width) {
    if (ALIGNED) {
      copy_async<16>(to + i * PIECES, vector + i < there ? own : from, vector + i < there ? 16 : 0);
    } else {  // rows begin at multiples of 4 bytes
      uint32_t pairs[4] = {};
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        if (vector + i < there && 2 * pair < left) pairs[pair] = reinterpret_cast<const uint32_t*>(own)[pair];
      }
      to[i * PIECES] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }
}

__device__ __forceinline__ uint32_t positive_difference(uint32_t a, uint32_t b) {
  const __half2 minus = __float2half2_rn(-1.0f);
  const __half2 both =
      __hfma2_relu(reinterpret_cast<const __half2&>(b), minus, reinterpret_cast<const __half2&>(a));
  return reinterpret_cast<const uint32_t&>(both);
}

// Of a product's operands a thread holds, of 16 numbers of rows t / 4 and t / 4 + 8, two pairs; which 16 of a vector
// these are does not matter to a sum. So piece t % 4 of four that make 32 numbers serves two products.
template <bool ALIGNED>
__global__ void __launch_bounds__(THREADS, 4)
    distances(const __half* __restrict__ x, const __half* __restrict__ y, float* __restrict__ out, int64_t m, int64_t n,
              int width) {
  __shared__ Vector left[ROWS], right[COLUMNS];
  const int64_t first_row = int64_t(blockIdx.y) * ROWS, first_column = int64_t(blockIdx.x) * COLUMNS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, of_eight = lane / 4, of_four = lane % 4;
  const int mine = warp / 2 * 64 + of_eight, other = warp % 2 * 32;
  fill<ALIGNED>(left, x, first_row, m, width);
  fill<ALIGNED>(right, y, first_column, n, width);
  wait_for_all_copies();
  __syncthreads();

  float sums[TALL][WIDE][4] = {};
#pragma unroll 1
  for (int part = 0; part < PIECES; part += 4) {
    uint4 a[TALL][2];
#pragma unroll
    for (int r = 0; r < 2 * TALL; ++r) {
      a[r / 2][r % 2] = left[mine + 8 * r][place(mine, part + of_four)];
    }
#pragma unroll
    for (int c = 0; c < WIDE; ++c) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint4 b = right[other + 8 * c + j][place(j, part + of_four)];
        const uint32_t here = of_eight == j ? ONES : 0;  // ones in column j of the product's right operand
#pragma unroll
        for (int r = 0; r < TALL; ++r) {
          const uint32_t terms[4] = {positive_difference(a[r][0].x, b.x), positive_difference(a[r][1].x, b.x),
                                     positive_difference(a[r][0].y, b.y), positive_difference(a[r][1].y, b.y)};
          multiply_half(sums[r][c], terms, here, here);
        }
#pragma unroll
        for (int r = 0; r < TALL; ++r) {
          const uint32_t terms[4] = {positive_difference(a[r][0].z, b.z), positive_difference(a[r][1].z, b.z),
                                     positive_difference(a[r][0].w, b.w), positive_difference(a[r][1].w, b.w)};
          multiply_half(sums[r][c], terms, here, here);
        }
      }
    }
  }
  float of_row[TALL][4] = {}, of_column[WIDE][4] = {};  // half of the sums of a row's and of a column's numbers
  const uint32_t halves[4] = {HALVES, HALVES, HALVES, HALVES};
#pragma unroll 1
  for (int part = 0; part < PIECES; part += 4) {
#pragma unroll
    for (int r = 0; r < TALL; ++r) {
      const uint4 above = left[mine + 16 * r][place(mine, part + of_four)];
      const uint4 below = left[mine + 16 * r + 8][place(mine, part + of_four)];
      multiply_half(of_row[r], {above.x, below.x, above.y, below.y}, HALVES, HALVES);
      multiply_half(of_row[r], {above.z, below.z, above.w, below.w}, HALVES, HALVES);
    }
#pragma unroll
    for (int c = 0; c < WIDE; ++c) {
      const uint4 b = right[other + 8 * c + of_eight][place(of_eight, part + of_four)];
      multiply_half(of_column[c], halves, b.x, b.y);
      multiply_half(of_column[c], halves, b.z, b.w);
    }
  }
#pragma unroll
  for (int r = 0; r < 2 * TALL; ++r) {
    const int64_t row = first_row + mine + 8 * r;
    if (row >= m) break;
#pragma unroll
    for (int c = 0; c < WIDE; ++c) {
      const int64_t column = first_column + other + 8 * c + 2 * of_four;
      const int at = r % 2 * 2;
      const float one = 2.0f * (sums[r / 2][c][at] - of_row[r / 2][at] + of_column[c][at]);
      const float next = 2.0f * (sums[r / 2][c][at + 1] - of_row[r / 2][at + 1] + of_column[c][at + 1]);
      float* const to = out + row * n + column;
      if (n % 2 == 0 && column < n) {
        *reinterpret_cast<float2*>(to) = {one, next};
      } else {
        if (column < n) to[0] = one;
        if (column + 1 < n) to[1] = next;
      }
    }
  }
}

// x (m, width), y (n, width), out (m, n). The width must be even and at most 128.
extern "C" int l1(const __half* x, const __half* y, float* out, int64_t m, int64_t n, int64_t width,
                  cudaStream_t stream) {
  if (width % 2 || width > MOST || ceil_div(m, ROWS) > 65535) return cudaErrorInvalidValue;
  const dim3 grid(ceil_div(n, COLUMNS), ceil_div(m, ROWS));
  const auto kernel = width % 8 ? distances<false> : distances<true>;
  kernel<<<grid, THREADS, 0, stream>>>(x, y, out, m, n, int(width));
  return cudaGetLastError();
}
