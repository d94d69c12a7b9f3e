// Update a managed array that lies in host memory: one prefetch brings all of it before the kernel, one sends it home.
#include "kernel.cuh"

constexpr int THREADS = 256;

// Pages to the memory of GPU `device`, or home to the host if that is cudaCpuDeviceId.
static cudaError_t prefetch(const float* pages, int64_t count, int device, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  const cudaMemLocation to = {device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, device};
  return cudaMemPrefetchAsync(pages, count * sizeof(float), to, 0, stream);
#else
  return cudaMemPrefetchAsync(pages, count * sizeof(float), device, stream);
#endif
}

__global__ void decay(float* values, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) values[i] = 0.5f * values[i] + 1.0f;
}

extern "C" int decay_prefetched(int64_t address, int64_t n, cudaStream_t stream) {
  float* values = reinterpret_cast<float*>(address);
  int device = 0;
  TRY(cudaGetDevice(&device));
  TRY(prefetch(values, n, device, stream));
  decay<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(values, n);
  TRY(cudaGetLastError());
  return prefetch(values, n, cudaCpuDeviceId, stream);
}
