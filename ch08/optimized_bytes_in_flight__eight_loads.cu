// Dequantize with half the warps, each with eight loads of 32 bytes begun before the first of them is used.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int LOADS = 8;  // begun before the first is used

// A block takes LOADS x THREADS codes of a row, or what is left of it.
__global__ void __launch_bounds__(THREADS)
    dequantize(const int8_t* __restrict__ codes, const float* __restrict__ scales, __nv_bfloat16* __restrict__ out,
               int64_t columns) {
  const int64_t row = blockIdx.y, first = int64_t(blockIdx.x) * LOADS * THREADS;
  const float scale = scales[row];
  const int8_t* from = codes + row * columns + first + threadIdx.x;
  __nv_bfloat16* to = out + row * columns + first + threadIdx.x;
  if (first + LOADS * THREADS <= columns) {
    int8_t code[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) code[k] = from[k * THREADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) to[k * THREADS] = __float2bfloat16(scale * code[k]);
  } else {
#pragma unroll 1
    for (int64_t i = 0; first + i + threadIdx.x < columns; i += THREADS) to[i] = __float2bfloat16(scale * from[i]);
  }
}

// Half the warps that the GPU could hold: each block reserves so much shared memory, unused, that no more fit.
extern "C" int dequantize_rows(const int8_t* codes, const float* scales, __nv_bfloat16* out, int64_t rows,
                               int64_t columns, cudaStream_t stream) {
  int threads = 0;
  size_t reserved = 0;
  TRY(query_device(&threads, cudaDevAttrMaxThreadsPerMultiProcessor));
  TRY(cudaOccupancyAvailableDynamicSMemPerBlock(&reserved, dequantize, threads / 2 / THREADS, THREADS));
  TRY(cudaFuncSetAttribute(dequantize, cudaFuncAttributeMaxDynamicSharedMemorySize, int(reserved)));
  const dim3 grid(ceil_div(columns, LOADS * THREADS), rows);
  dequantize<<<grid, THREADS, reserved, stream>>>(codes, scales, out, columns);
  return cudaGetLastError();
}
