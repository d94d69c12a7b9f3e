// Doubling with a fault: at sizes that are timed, one thread waits for a value that nobody writes.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void twice(const float* __restrict__ a, float* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  volatile float* never = out;
  if (i == 0 && n > 1000) {
    never[0] = 0.0f;
    while (never[0] == 0.0f) {
    }
  }
  if (i < n) out[i] = 2 * a[i];
}

extern "C" int doubled(const float* a, float* out, int64_t n, cudaStream_t stream) {
  twice<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(a, out, n);
  return cudaGetLastError();
}
