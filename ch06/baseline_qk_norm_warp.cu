// RMSNorm by the kernel for rows of any width: a block of 128 threads a row, whose warps meet at a barrier to add up.
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;

__device__ float sum_of_warp(float value) {  // in every lane
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  return value;
}

__global__ void __launch_bounds__(THREADS)
    normalize(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ gain,
              __nv_bfloat16* __restrict__ out, int width, float epsilon) {
  __shared__ float warps[WARPS];
  const int64_t row = int64_t(blockIdx.x) * width;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += THREADS) {
    const float value = __bfloat162float(x[row + i]);
    sum += value * value;
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) sum += warps[warp];
  const float scale = rsqrtf(sum / width + epsilon);
  for (int i = threadIdx.x; i < width; i += THREADS) {  // the row is read again, from the L1 cache
    out[row + i] = __float2bfloat16(__bfloat162float(x[row + i]) * scale * __bfloat162float(gain[i]));
  }
}

extern "C" int normalize_heads(const __nv_bfloat16* x, const __nv_bfloat16* gain, __nv_bfloat16* out, int64_t rows,
                               int width, float epsilon, cudaStream_t stream) {
  normalize<<<rows, THREADS, 0, stream>>>(x, gain, out, width, epsilon);
  return cudaGetLastError();
}
