// Update a managed array where it lies, in host memory: its pages are mapped on the GPU ahead, and none of them moves.
#include "kernel.cuh"

constexpr int THREADS = 256, PIECES = 4, BLOCKS = 32;  // 512 KiB on the way

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

// Few blocks, each of which takes every so many tiles: PCIe has enough on the way.
__global__ void __launch_bounds__(THREADS) decay(float* values, int64_t n) {
  const int64_t fours = n / 4, tile = THREADS * PIECES;
  auto pieces = reinterpret_cast<float4*>(values);
  for (int64_t i = blockIdx.x * tile + threadIdx.x; i < fours; i += gridDim.x * tile) {
    float4 in[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      if (i + k * THREADS < fours) in[k] = __ldcs(pieces + i + k * THREADS);
    }
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      const float4 out = {decayed(in[k].x), decayed(in[k].y), decayed(in[k].z), decayed(in[k].w)};
      if (i + k * THREADS < fours) __stcs(pieces + i + k * THREADS, out);
    }
  }
  const int64_t last = 4 * fours + int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (last < n) values[last] = decayed(values[last]);
}

extern "C" int decay_in_place(int64_t address, int64_t n, cudaStream_t stream) {
  decay<<<BLOCKS, THREADS, 0, stream>>>(reinterpret_cast<float*>(address), n);
  return cudaGetLastError();
}
