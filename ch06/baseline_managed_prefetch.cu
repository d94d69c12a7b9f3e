// Update a managed array that lies in host memory: the kernel faults its pages in, then one prefetch sends them home.
#include "kernel.cuh"

constexpr int THREADS = 256;

// Managed memory, its address in `address`; no more of it than the GPU has free, or its pages would be evicted again.
extern "C" int allocate(int64_t* address, int64_t bytes, cudaStream_t stream) {
  int concurrent = 0;
  size_t available = 0, total = 0;
  TRY(query_device(&concurrent, cudaDevAttrConcurrentManagedAccess));
  TRY(cudaMemGetInfo(&available, &total));
  if (!concurrent) return cudaErrorNotSupported;
  if (size_t(bytes) > available) return cudaErrorMemoryAllocation;
  void* memory = nullptr;
  TRY(cudaMallocManaged(&memory, bytes));
  *address = reinterpret_cast<int64_t>(memory);
  return cudaSuccess;
}

extern "C" int release(int64_t address, cudaStream_t stream) { return cudaFree(reinterpret_cast<void*>(address)); }

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

extern "C" int decay_on_demand(int64_t address, int64_t n, cudaStream_t stream) {
  float* values = reinterpret_cast<float*>(address);
  decay<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(values, n);
  TRY(cudaGetLastError());
  return prefetch(values, n, cudaCpuDeviceId, stream);
}
