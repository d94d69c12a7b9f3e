// RMSNorm of rows of 128 by warps: a row is four values a lane, and each warp has loaded four rows before it adds.
#include "kernel.cuh"

constexpr int WIDTH = 128;  // of a head: four values a lane
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int ROWS = 4;  // of a warp, all in flight together: 32 bytes a lane

// Four bf16 values in one word of 8 bytes, which is loaded and stored at once.
__device__ float4 widened(uint2 piece) {
  const float2 low = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(piece.x));
  const float2 high = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(piece.y));
  return {low.x, low.y, high.x, high.y};
}

__device__ uint2 rounded(float4 v) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
  return {reinterpret_cast<const unsigned&>(low), reinterpret_cast<const unsigned&>(high)};
}

__device__ float sum_of_warp(float value) {  // in every lane
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  return value;
}

__device__ uint2 normalized(uint2 piece, float4 gain, float epsilon) {
  const float4 v = widened(piece);
  const float sum = sum_of_warp((v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w));
  const float scale = rsqrtf(sum / WIDTH + epsilon);
  return rounded({v.x * scale * gain.x, v.y * scale * gain.y, v.z * scale * gain.z, v.w * scale * gain.w});
}

__global__ void __launch_bounds__(THREADS)
    normalize(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ gain,
              __nv_bfloat16* __restrict__ out, int64_t rows, float epsilon) {
  const int lane = threadIdx.x % 32;
  const int64_t first = (int64_t(blockIdx.x) * WARPS + threadIdx.x / 32) * ROWS;
  if (first >= rows) return;  // the whole warp
  const auto from = reinterpret_cast<const uint2*>(x) + lane;
  const auto to = reinterpret_cast<uint2*>(out) + lane;
  uint2 piece[ROWS];
#pragma unroll
  for (int k = 0; k < ROWS; ++k) piece[k] = from[min(first + k, rows - 1) * 32];  // behind the end, the last row again
  const float4 weights = widened(reinterpret_cast<const uint2*>(gain)[lane]);
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const uint2 done = normalized(piece[k], weights, epsilon);
    if (first + k < rows) to[(first + k) * 32] = done;
  }
}

extern "C" int normalize_heads(const __nv_bfloat16* x, const __nv_bfloat16* gain, __nv_bfloat16* out, int64_t rows,
                               int width, float epsilon, cudaStream_t stream) {
  if (width != WIDTH) return cudaErrorInvalidValue;
  normalize<<<ceil_div(rows, WARPS * ROWS), THREADS, 0, stream>>>(x, gain, out, rows, epsilon);
  return cudaGetLastError();
}
