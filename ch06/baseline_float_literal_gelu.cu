// GELU by tanh in float32 as it is often typed: 0.5 and the other literals are doubles, and so is all that they touch.
#include "kernel.cuh"

constexpr int THREADS = 256;

__device__ float gelu(float x) {
  return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

__global__ void __launch_bounds__(THREADS) activate(const float* __restrict__ x, float* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n / 4) {
    const float4 four = reinterpret_cast<const float4*>(x)[i];
    reinterpret_cast<float4*>(out)[i] = {gelu(four.x), gelu(four.y), gelu(four.z), gelu(four.w)};
  }
  if (n / 4 * 4 + i < n) out[n / 4 * 4 + i] = gelu(x[n / 4 * 4 + i]);  // up to three elements are left over
}

extern "C" int gelu_by_doubles(const float* x, float* out, int64_t n, cudaStream_t stream) {
  activate<<<ceil_div(n, 4 * THREADS), THREADS, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
