// Depthwise 7x7 convolution: a block copies a tile and its margin to shared memory, then each thread computes 4 x 4
// outputs at a time from registers. The first launcher takes tiles so large that a multiprocessor has room for one block,
// the second has four blocks there.
#include "kernel.cuh"

constexpr int TAPS = 7, MARGIN = TAPS / 2, PAD = 4;  // four columns at each side, so that a row is whole float4
constexpr int DOWN = 4, ACROSS = 4;                  // outputs of a thread at a time

template <int height, int width>
constexpr int bytes_of_tile = (height + 2 * MARGIN) * (width + 2 * PAD) * 4;

__device__ float4 read_four(const float* plane, int row, int column, int rows, int columns) {
  if (row < 0 || row >= rows || column < 0 || column >= columns) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  return *reinterpret_cast<const float4*>(plane + int64_t(row) * columns + column);
}

template <int height, int width, int threads, int blocks>
__global__ void __launch_bounds__(threads, blocks)
    convolve_tile(const float* __restrict__ x, const float* __restrict__ filters, float* __restrict__ out, int channels,
                  int rows, int columns) {
  extern __shared__ float4 tile[];
  constexpr int pitch = (width + 2 * PAD) / 4, tall = height + 2 * MARGIN;
  const int64_t plane = blockIdx.z * (int64_t(rows) * columns);
  const int first_row = blockIdx.y * height, first_column = blockIdx.x * width;
  for (int i = threadIdx.x; i < tall * pitch; i += threads)
    tile[i] = read_four(x + plane, first_row + i / pitch - MARGIN, first_column + i % pitch * 4 - PAD, rows, columns);
  float weights[TAPS * TAPS];
#pragma unroll
  for (int i = 0; i < TAPS * TAPS; ++i) weights[i] = filters[blockIdx.z % channels * (TAPS * TAPS) + i];
  __syncthreads();

  constexpr int parts = width / ACROSS;
  for (int part = threadIdx.x; part < parts * (height / DOWN); part += threads) {
    const int down = part / parts * DOWN, across = part % parts * ACROSS;
    float sums[DOWN][ACROSS] = {};
#pragma unroll
    for (int from = 0; from < DOWN + TAPS - 1; ++from) {
      float values[3 * 4];
#pragma unroll
      for (int i = 0; i < 3; ++i)
        *reinterpret_cast<float4*>(values + 4 * i) = tile[(down + from) * pitch + across / 4 + i];
#pragma unroll
      for (int tap = 0; tap < TAPS; ++tap) {
        const int to = from - tap;
        if (to < 0 || to >= DOWN) continue;
#pragma unroll
        for (int i = 0; i < ACROSS; ++i)
#pragma unroll
          for (int j = 0; j < TAPS; ++j)
            sums[to][i] = fmaf(weights[tap * TAPS + j], values[PAD - MARGIN + i + j], sums[to][i]);
      }
    }
    const int row = first_row + down, column = first_column + across;
#pragma unroll
    for (int i = 0; i < DOWN; ++i)
      if (row + i < rows && column < columns)
        *reinterpret_cast<float4*>(out + plane + int64_t(row + i) * columns + column) =
            make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
  }
}

template <int height, int width, int threads, int blocks>
cudaError_t launch(const float* x, const float* filters, float* out, int64_t images, int64_t channels, int64_t rows,
                   int64_t columns, cudaStream_t stream) {
  if (columns % 4) return cudaErrorInvalidValue;
  const auto kernel = convolve_tile<height, width, threads, blocks>;
  constexpr int bytes = bytes_of_tile<height, width>;
  const auto opt_in = cudaFuncAttributeMaxDynamicSharedMemorySize;
  TRY(cudaFuncSetAttribute(kernel, opt_in, bytes));
  const dim3 grid(unsigned(ceil_div(columns, width)), unsigned(ceil_div(rows, height)), unsigned(images * channels));
  kernel<<<grid, threads, bytes, stream>>>(x, filters, out, int(channels), int(rows), int(columns));
  return cudaGetLastError();
}

extern "C" int convolve(const float* x, const float* filters, float* out, int64_t images, int64_t channels,
                        int64_t rows, int64_t columns, cudaStream_t stream) {
  return launch<128, 256, 512, 1>(x, filters, out, images, channels, rows, columns, stream);  // 141 KB
}

extern "C" int convolve_small(const float* x, const float* filters, float* out, int64_t images, int64_t channels,
                              int64_t rows, int64_t columns, cudaStream_t stream) {
  return launch<64, 64, 128, 4>(x, filters, out, images, channels, rows, columns, stream);  // 20 KB
}
