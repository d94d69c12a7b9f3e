// Smooth signals twice, each through a workspace that the driver maps for it and unmaps behind it.
#include "kernel.cuh"

constexpr int THREADS = 256;

// The mean of each element and its two neighbours; the first and the last are neighbours, too.
__global__ void __launch_bounds__(THREADS) smooth(const float* __restrict__ from, float* __restrict__ to, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) to[i] = (from[i > 0 ? i - 1 : n - 1] + from[i] + from[i + 1 < n ? i + 1 : 0]) * (1.0f / 3.0f);
}

static cudaError_t smooth_twice(const float* signal, float* workspace, float* out, int64_t n, cudaStream_t stream) {
  smooth<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(signal, workspace, n);
  smooth<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(workspace, out, n);
  return cudaGetLastError();
}

// Signals come one by one, as calls of a library that needs a workspace for each.
extern "C" int smooth_all(const float* signals, float* out, int64_t count, int64_t n, cudaStream_t stream) {
  cudaError_t status = cudaSuccess;
  for (int64_t i = 0; i < count && !status; ++i) {
    float* workspace = nullptr;
    status = cudaMalloc(&workspace, n * sizeof(float));
    if (status) break;
    status = smooth_twice(signals + i * n, workspace, out + i * n, n, stream);
    const cudaError_t freed = cudaFree(workspace);  // returns when the GPU is idle, for the kernels use it until then
    if (!status) status = freed;
  }
  return status;
}
