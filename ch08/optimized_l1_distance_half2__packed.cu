// Manhattan distances by tiles in registers, two terms an instruction: fp16 pairs, added up in fp32 every 32 terms.
#include "kernel.cuh"

constexpr int ROWS = 128, COLUMNS = 64, THREADS = 256;  // of a block; a thread has 8 rows and 4 columns
constexpr int SLICE = 16;                               // pairs of numbers of a vector in shared memory
constexpr int GAP = 4;                                  // so that neighbouring pairs lie in other banks

// A slice of COUNT vectors, the same pair of all of them side by side; zeros beyond the end.
template <int COUNT>
__device__ __forceinline__ void fill(__half2 (&tile)[SLICE][COUNT + GAP], const __half2* __restrict__ from,
                                     int64_t first, int64_t vectors, int start, int pairs) {
#pragma unroll
  for (int i = threadIdx.x; i < COUNT * SLICE; i += THREADS) {
    const int pair = i % SLICE, vector = i / SLICE;
    const bool there = first + vector < vectors && start + pair < pairs;
    const __half2 both = there ? from[(first + vector) * pairs + start + pair] : __float2half2_rn(0.0f);
    tile[pair][vector] = both;
  }
}

__global__ void __launch_bounds__(THREADS, 2)
    distances(const __half2* __restrict__ x, const __half2* __restrict__ y, float* __restrict__ out, int64_t m,
              int64_t n, int pairs) {
  __shared__ __align__(16) __half2 left[SLICE][ROWS + GAP], right[SLICE][COLUMNS + GAP];
  const int64_t first_row = int64_t(blockIdx.y) * ROWS, first_column = int64_t(blockIdx.x) * COLUMNS;
  const int mine = threadIdx.x / 16 * 8, other = threadIdx.x % 16 * 4;
  float sums[8][4] = {};
  for (int start = 0; start < pairs; start += SLICE) {
    fill<ROWS>(left, x, first_row, m, start, pairs);
    fill<COLUMNS>(right, y, first_column, n, start, pairs);
    __syncthreads();
    __half2 part[8][4];
#pragma unroll
    for (int i = 0; i < 32; ++i) part[i / 4][i % 4] = __float2half2_rn(0.0f);
#pragma unroll
    for (int k = 0; k < SLICE; ++k) {
      __half2 a[8], b[4];
#pragma unroll
      for (int r = 0; r < 8; ++r) a[r] = left[k][mine + r];
#pragma unroll
      for (int c = 0; c < 4; ++c) b[c] = right[k][other + c];
#pragma unroll
      for (int r = 0; r < 8; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) part[r][c] = __hadd2(part[r][c], __habs2(__hsub2(a[r], b[c])));
      }
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[r][c] += __low2float(part[r][c]) + __high2float(part[r][c]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const int64_t row = first_row + mine + r, column = first_column + other;
    if (row >= m) break;
    if (n % 4 == 0 && column < n) {
      *reinterpret_cast<float4*>(out + row * n + column) = {sums[r][0], sums[r][1], sums[r][2], sums[r][3]};
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (column + c < n) out[row * n + column + c] = sums[r][c];
      }
    }
  }
}

// x (m, width), y (n, width), out (m, n). The width must be even.
extern "C" int l1(const __half* x, const __half* y, float* out, int64_t m, int64_t n, int64_t width,
                  cudaStream_t stream) {
  if (width % 2 || ceil_div(m, ROWS) > 65535) return cudaErrorInvalidValue;
  const dim3 grid(ceil_div(n, COLUMNS), ceil_div(m, ROWS));
  distances<<<grid, THREADS, 0, stream>>>(reinterpret_cast<const __half2*>(x), reinterpret_cast<const __half2*>(y), out,
                                          m, n, int(width / 2));
  return cudaGetLastError();
}
