// Four passes over the array, one operation each: nine array transfers where two would do.
#include "kernel.cuh"

constexpr int THREADS = 256;

__device__ float affine(float value) { return 1.5f * value + 0.25f; }
__device__ float clamp(float value) { return fminf(fmaxf(value, -1.0f), 2.0f); }
__device__ float square(float value) { return value * value; }

template <float (*operation)(float)>
__global__ void apply(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
  if (i < n) out[i] = operation(in[i]);
}

__global__ void add(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
  if (i < n) out[i] += in[i];
}

extern "C" int four_passes(const float* x, float* out, int64_t n, cudaStream_t stream) {
  const int blocks = ceil_div(n, THREADS);
  apply<affine><<<blocks, THREADS, 0, stream>>>(x, out, n);
  apply<clamp><<<blocks, THREADS, 0, stream>>>(out, out, n);
  apply<square><<<blocks, THREADS, 0, stream>>>(out, out, n);
  add<<<blocks, THREADS, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
