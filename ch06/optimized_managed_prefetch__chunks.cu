// Update a managed array that lies in host memory chunk by chunk: one comes while the one before it goes home.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int64_t CHUNK = int64_t(1) << 22;  // floats: 16 MiB, 0.3 ms at the rate of a PCIe 5 copy, long beside a call

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

// A prefetch into an idle stream is begun by the caller, one into a busy stream by a thread of the driver. So chunks go
// home behind their kernel, and the next one is asked for once its stream is idle: the two directions then overlap.
extern "C" int decay_in_chunks(int64_t address, int64_t n, cudaStream_t stream) {
  static cudaStream_t ahead = nullptr;
  if (ahead == nullptr) TRY(cudaStreamCreateWithFlags(&ahead, cudaStreamNonBlocking));
  float* values = reinterpret_cast<float*>(address);
  int device = 0;
  TRY(cudaGetDevice(&device));
  TRY(cudaStreamSynchronize(stream));  // what came before may still be sending the array home
  TRY(prefetch(values, n < CHUNK ? n : CHUNK, device, ahead));
  for (int64_t first = 0; first < n; first += CHUNK) {
    const int64_t next = first + CHUNK, count = next < n ? CHUNK : n - first;
    TRY(cudaStreamSynchronize(ahead));  // this chunk has come
    decay<<<ceil_div(count, THREADS), THREADS, 0, stream>>>(values + first, count);
    TRY(cudaGetLastError());
    TRY(prefetch(values + first, count, cudaCpuDeviceId, stream));
    if (next < n) TRY(prefetch(values + next, n - next < CHUNK ? n - next : CHUNK, device, ahead));
  }
  return cudaSuccess;
}
