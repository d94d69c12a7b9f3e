// A chain of small kernels, to be captured in a CUDA graph: a bad launch is found then, a kernel's error at the end.
#include "kernel.cuh"

constexpr int THREADS = 256;

// One time step of the heat equation on a ring.
__global__ void __launch_bounds__(THREADS) diffuse(const float* __restrict__ from, float* __restrict__ to, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const float left = from[i > 0 ? i - 1 : n - 1], right = from[i + 1 < n ? i + 1 : 0];
  to[i] = from[i] + 0.25f * (left - 2.0f * from[i] + right);
}

extern "C" int diffuse_all(const float* heat, float* spare, float* out, int n, int steps, cudaStream_t stream) {
  const float* from = heat;
  for (int left = steps; left > 0; --left) {
    float* to = left % 2 ? out : spare;  // so that the last one writes `out`
    diffuse<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(from, to, n);
    TRY(cudaGetLastError());
    from = to;
  }
  return cudaSuccess;
}
