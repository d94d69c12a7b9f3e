// Scale rows of an odd length element by element: most of them begin where no 16-byte access may.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    scale_row(const __nv_bfloat16* __restrict__ x, const float* __restrict__ scales, __nv_bfloat16* __restrict__ out,
              int64_t columns) {
  const __nv_bfloat16* from = x + blockIdx.x * columns;
  __nv_bfloat16* to = out + blockIdx.x * columns;
  const float scale = scales[blockIdx.x];
#pragma unroll 8  // eight loads in flight
  for (int64_t i = threadIdx.x; i < columns; i += THREADS) to[i] = __float2bfloat16(scale * __bfloat162float(from[i]));
}

extern "C" int scale_rows(const __nv_bfloat16* x, const float* scales, __nv_bfloat16* out, int64_t rows,
                          int64_t columns, cudaStream_t stream) {
  scale_row<<<rows, THREADS, 0, stream>>>(x, scales, out, columns);
  return cudaGetLastError();
}
