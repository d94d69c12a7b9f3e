// The median of 5 x 5 values by a network of exchanges, one pixel a thread. What the median does not need the compiler
// leaves out.
#include "kernel.cuh"

#include <utility>

constexpr int WIDE = 32, HIGH = 8;  // threads of a block, a pixel each
constexpr int SIDE = 5, COUNT = SIDE * SIDE;

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

__global__ void __launch_bounds__(WIDE* HIGH)
    median_network(const float* __restrict__ image, float* __restrict__ out, int rows, int columns) {
  const int x = blockIdx.x * WIDE + threadIdx.x, y = blockIdx.y * HIGH + threadIdx.y;
  if (x >= columns || y >= rows) return;
  float values[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int row = min(max(y + i / SIDE - SIDE / 2, 0), rows - 1);
    const int column = min(max(x + i % SIDE - SIDE / 2, 0), columns - 1);
    values[i] = image[int64_t(row) * columns + column];
  }
  sort(values);
  out[int64_t(y) * columns + x] = values[COUNT / 2];
}

extern "C" int median_filter(const float* image, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 grid(ceil_div(columns, WIDE), ceil_div(rows, HIGH)), block(WIDE, HIGH);
  median_network<<<grid, block, 0, stream>>>(image, out, int(rows), int(columns));
  return cudaGetLastError();
}
