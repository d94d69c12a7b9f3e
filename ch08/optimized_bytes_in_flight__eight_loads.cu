// Dequantize with half the warps, each with eight loads of 32 bytes begun before the first of them is used.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int LOADS = 8;  // begun before the first is used

// Blocks take rows in turn.
__global__ void __launch_bounds__(THREADS)
    dequantize(const int8_t* __restrict__ codes, const float* __restrict__ scales, __nv_bfloat16* __restrict__ out,
               int64_t rows, int64_t columns) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float scale = scales[row];
    const int8_t* from = codes + row * columns;
    __nv_bfloat16* to = out + row * columns;
    int64_t i = threadIdx.x;
#pragma unroll 1
    for (; i + (LOADS - 1) * THREADS < columns; i += LOADS * THREADS) {
      int8_t code[LOADS];
#pragma unroll
      for (int k = 0; k < LOADS; ++k) code[k] = from[i + k * THREADS];
#pragma unroll
      for (int k = 0; k < LOADS; ++k) to[i + k * THREADS] = __float2bfloat16(scale * code[k]);
    }
#pragma unroll 1
    for (; i < columns; i += THREADS) to[i] = __float2bfloat16(scale * from[i]);
  }
}

extern "C" int dequantize_rows(const int8_t* codes, const float* scales, __nv_bfloat16* out, int64_t rows,
                               int64_t columns, cudaStream_t stream) {
  int device = 0, multiprocessors = 0, threads = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  const int64_t half = int64_t(multiprocessors) * (threads / 2 / THREADS);  // of the warps that the GPU could hold
  dequantize<<<rows < half ? rows : half, THREADS, 0, stream>>>(codes, scales, out, rows, columns);
  return cudaGetLastError();
}
