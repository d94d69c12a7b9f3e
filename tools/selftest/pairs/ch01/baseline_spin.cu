// One block waits until the GPU's nanosecond timer has advanced by `ns`, then copies.
#include "kernel.cuh"

constexpr int THREADS = 256;

__device__ int64_t nanoseconds() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void wait_and_copy(const float* a, float* out, int64_t n, int64_t ns) {
  const int64_t began = nanoseconds();
  while (nanoseconds() - began < ns) {
  }
  for (int64_t i = threadIdx.x; i < n; i += THREADS) out[i] = a[i];
}

extern "C" int spin_then_copy(const float* a, float* out, int64_t n, int64_t ns, cudaStream_t stream) {
  wait_and_copy<<<1, THREADS, 0, stream>>>(a, out, n, ns);
  return cudaGetLastError();
}
