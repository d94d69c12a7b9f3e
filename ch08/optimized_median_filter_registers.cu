// The median of 5 x 5 values, four pixels a thread: what their windows share is sorted once, and what cannot be a median
// any more is dropped. All places are constants.
#include "kernel.cuh"

#include <utility>

constexpr int WIDE = 32, HIGH = 8;  // threads of a block, 2 x 2 pixels each
constexpr int PATCH = 6;            // the side of what these four windows cover together

// Batcher's odd-even merge sort of N values: which pairs of places to compare, found by the compiler.
template <int N>
struct Network {
  int count = 0, low[N * N / 2] = {}, high[N * N / 2] = {};
  constexpr Network() {
    for (int run = 1; run < N; run *= 2) {
      for (int apart = run; apart >= 1; apart /= 2) {
        for (int j = apart % run; j < N - apart; j += 2 * apart) {
          for (int i = j; i < j + apart && i < N - apart; ++i) {
            if (i / (2 * run) == (i + apart) / (2 * run)) low[count] = i, high[count++] = i + apart;
          }
        }
      }
    }
  }
};
template <int N>
constexpr Network<N> NETWORK{};

// The places are template arguments, so they are constants, and both values stay in registers.
template <int low, int high, int N>
__device__ void exchange(float (&values)[N]) {
  const float a = values[low], b = values[high];
  values[low] = fminf(a, b);
  values[high] = fmaxf(a, b);
}

template <int N, size_t... i>
__device__ void sort(float (&values)[N], std::index_sequence<i...>) {
  (exchange<NETWORK<N>.low[i], NETWORK<N>.high[i]>(values), ...);
}

template <int N>
__device__ void sort(float (&values)[N]) {
  sort(values, std::make_index_sequence<NETWORK<N>.count>{});
}

// The k-th smallest of two sorted arrays together: if i of these k are from a, the largest of them is the larger of a's
// i-th and b's (k - i)-th; and the right i makes it smallest.
template <int k, int N, int M>
__device__ float kth(const float (&a)[N], const float (&b)[M]) {
  constexpr int LEAST = k > M ? k - M : 0, MOST = k < N ? k : N;
  float smallest = 0.0f;
#pragma unroll
  for (int i = LEAST; i <= MOST; ++i) {
    const float largest = i == 0 ? b[k - 1] : i == k ? a[k - 1] : fmaxf(a[i - 1], b[k - i - 1]);
    smallest = i == LEAST ? largest : fminf(smallest, largest);
  }
  return smallest;
}

// The medians of the four windows in a patch: window (i, j) is rows i to i + 4, columns j to j + 4.
__device__ void medians(const float (&patch)[PATCH][PATCH], float (&out)[2][2]) {
  float core[16], side[2][4], end[2][4];  // shared by all four windows; by one column of them; by one row of them
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) core[4 * i + j] = patch[1 + i][1 + j];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      side[j][i] = patch[1 + i][5 * j];
      end[j][i] = patch[5 * j][1 + i];
    }
  }
  sort(core);
  float middle[10];  // nine values are still to come: the three smallest and the three largest cannot be the median
#pragma unroll
  for (int i = 0; i < 10; ++i) middle[i] = core[3 + i];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    sort(side[j]);
    sort(end[j]);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    // Of 14 values and five to come, ten of all below or at the median, the fifth to the tenth may be it.
    const float near[6] = {kth<5>(middle, side[j]), kth<6>(middle, side[j]), kth<7>(middle, side[j]),
                           kth<8>(middle, side[j]), kth<9>(middle, side[j]), kth<10>(middle, side[j])};
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // of ten values the fifth or the sixth, or the corner if it lies between
      out[i][j] = fmaxf(kth<5>(near, end[i]), fminf(patch[5 * i][5 * j], kth<6>(near, end[i])));
    }
  }
}

// `paired`: rows have an even number of columns, so two neighbours can be read and written at once.
template <bool paired>
__global__ void __launch_bounds__(WIDE* HIGH)
    median_shared(const float* __restrict__ image, float* __restrict__ out, int rows, int columns) {
  const int x = 2 * (blockIdx.x * WIDE + threadIdx.x), y = 2 * (blockIdx.y * HIGH + threadIdx.y);
  if (x >= columns || y >= rows) return;
  float patch[PATCH][PATCH], results[2][2];
  if (paired && x >= 2 && x + 4 <= columns && y >= 2 && y + 4 <= rows) {
#pragma unroll
    for (int i = 0; i < PATCH; ++i) {
      const auto* row = reinterpret_cast<const float2*>(image + int64_t(y - 2 + i) * columns + x - 2);
#pragma unroll
      for (int j = 0; j < PATCH / 2; ++j) {
        const float2 two = row[j];
        patch[i][2 * j] = two.x, patch[i][2 * j + 1] = two.y;
      }
    }
  } else {  // at the border, which is repeated
#pragma unroll
    for (int i = 0; i < PATCH; ++i) {
      const float* row = image + int64_t(min(max(y - 2 + i, 0), rows - 1)) * columns;
#pragma unroll
      for (int j = 0; j < PATCH; ++j) patch[i][j] = row[min(max(x - 2 + j, 0), columns - 1)];
    }
  }
  medians(patch, results);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (y + i >= rows) break;
    float* to = out + int64_t(y + i) * columns + x;
    if (paired) {
      *reinterpret_cast<float2*>(to) = {results[i][0], results[i][1]};
    } else {
      to[0] = results[i][0];
      if (x + 1 < columns) to[1] = results[i][1];
    }
  }
}

extern "C" int median_filter(const float* image, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 grid(ceil_div(columns, 2 * WIDE), ceil_div(rows, 2 * HIGH)), block(WIDE, HIGH);
  const auto kernel = columns % 2 ? median_shared<false> : median_shared<true>;
  kernel<<<grid, block, 0, stream>>>(image, out, int(rows), int(columns));
  return cudaGetLastError();
}
