// Dequantize with one element a thread: the multiprocessor is full of warps, and each waits for 32 bytes.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void dequantize(const int8_t* __restrict__ codes, const float* __restrict__ scales,
                           __nv_bfloat16* __restrict__ out, int64_t columns) {
  const int64_t row = blockIdx.y, column = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (column < columns) out[row * columns + column] = __float2bfloat16(scales[row] * codes[row * columns + column]);
}

extern "C" int dequantize_rows(const int8_t* codes, const float* scales, __nv_bfloat16* out, int64_t rows,
                               int64_t columns, cudaStream_t stream) {
  const dim3 grid(ceil_div(columns, THREADS), rows);
  dequantize<<<grid, THREADS, 0, stream>>>(codes, scales, out, columns);
  return cudaGetLastError();
}
