// Update a managed array where it lies, in host memory: its pages are mapped on the GPU ahead, and none of them moves.
#include "kernel.cuh"

constexpr int THREADS = 256;

// The pages stay at home, and the GPU reaches them there without a fault.
extern "C" int keep_at_home(int64_t address, int64_t bytes, cudaStream_t stream) {
  const void* pages = reinterpret_cast<const void*>(address);
  int device = 0;
  TRY(cudaGetDevice(&device));
#if CUDART_VERSION >= 13000
  const cudaMemLocation home = {cudaMemLocationTypeHost, 0}, gpu = {cudaMemLocationTypeDevice, device};
#else
  const int home = cudaCpuDeviceId, gpu = device;
#endif
  TRY(cudaMemAdvise(pages, bytes, cudaMemAdviseSetPreferredLocation, home));
  return cudaMemAdvise(pages, bytes, cudaMemAdviseSetAccessedBy, gpu);
}

__device__ float decayed(float value) { return 0.5f * value + 1.0f; }

__global__ void __launch_bounds__(THREADS) decay(float* values, int64_t n) {
  const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  const int64_t fours = n / 4;
  if (first < fours) {
    float4 four = __ldcs(reinterpret_cast<const float4*>(values) + first);
    four = {decayed(four.x), decayed(four.y), decayed(four.z), decayed(four.w)};
    __stcs(reinterpret_cast<float4*>(values) + first, four);
  }
  if (first < n - 4 * fours) values[4 * fours + first] = decayed(values[4 * fours + first]);
}

extern "C" int decay_in_place(int64_t address, int64_t n, cudaStream_t stream) {
  decay<<<ceil_div(ceil_div(n, 4), THREADS), THREADS, 0, stream>>>(reinterpret_cast<float*>(address), n);
  return cudaGetLastError();
}
