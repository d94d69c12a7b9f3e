// Dequantize with half the warps, each with eight loads of 128 bytes begun before the first of them is used.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int LOADS = 8;  // begun before the first is used
constexpr int WIDTH = 4;  // codes to a load

template <int width>
struct alignas(width) Codes {
  int8_t at[width];
};

template <int width>
struct alignas(2 * width) Values {
  __nv_bfloat16 at[width];
};

template <int width>
__device__ Values<width> dequantized(Codes<width> codes, float scale) {
  Values<width> values;
#pragma unroll
  for (int i = 0; i < width; ++i) values.at[i] = __float2bfloat16(scale * codes.at[i]);
  return values;
}

// Blocks take rows in turn. `columns` is a multiple of `width`.
template <int width>
__global__ void __launch_bounds__(THREADS)
    dequantize(const int8_t* __restrict__ codes, const float* __restrict__ scales, __nv_bfloat16* __restrict__ out,
               int64_t rows, int64_t columns) {
  const int64_t pieces = columns / width;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float scale = scales[row];
    const auto from = reinterpret_cast<const Codes<width>*>(codes + row * columns);
    const auto to = reinterpret_cast<Values<width>*>(out + row * columns);
    int64_t i = threadIdx.x;
#pragma unroll 1
    for (; i + (LOADS - 1) * THREADS < pieces; i += LOADS * THREADS) {
      Codes<width> piece[LOADS];
#pragma unroll
      for (int k = 0; k < LOADS; ++k) piece[k] = from[i + k * THREADS];
#pragma unroll
      for (int k = 0; k < LOADS; ++k) to[i + k * THREADS] = dequantized(piece[k], scale);
    }
#pragma unroll 1
    for (; i < pieces; i += THREADS) to[i] = dequantized(from[i], scale);
  }
}

extern "C" int dequantize_rows(const int8_t* codes, const float* scales, __nv_bfloat16* out, int64_t rows,
                               int64_t columns, cudaStream_t stream) {
  int device = 0, multiprocessors = 0, threads = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  const int64_t half = int64_t(multiprocessors) * (threads / 2 / THREADS);  // of the warps that the GPU could hold
  const int64_t grid = rows < half ? rows : half;
  if (columns % WIDTH == 0) {
    dequantize<WIDTH><<<grid, THREADS, 0, stream>>>(codes, scales, out, rows, columns);
  } else {  // rows that start between words are read code by code
    dequantize<1><<<grid, THREADS, 0, stream>>>(codes, scales, out, rows, columns);
  }
  return cudaGetLastError();
}
