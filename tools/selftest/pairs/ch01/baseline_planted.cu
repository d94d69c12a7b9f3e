// Each block waits for `cycles` SM clocks, then doubles its share of an array; all blocks are resident at once.
#include "kernel.cuh"

constexpr int THREADS = 512;
constexpr int BLOCKS_ON_AN_SM = 2;

__global__ void __launch_bounds__(THREADS, BLOCKS_ON_AN_SM)
    wait_and_double(const float* __restrict__ a, float* __restrict__ out, int64_t n, int64_t cycles) {
  const int64_t began = clock64();
  while (clock64() - began < cycles) {
  }
  const int64_t stride = int64_t(gridDim.x) * THREADS, first = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  const int64_t quads = n / 4;
#pragma unroll 4
  for (int64_t i = first; i < quads; i += stride) {
    const float4 in = reinterpret_cast<const float4*>(a)[i];
    reinterpret_cast<float4*>(out)[i] = {2 * in.x, 2 * in.y, 2 * in.z, 2 * in.w};
  }
  for (int64_t i = 4 * quads + first; i < n; i += stride) out[i] = 2 * a[i];
}

extern "C" int double_after(const float* a, float* out, int64_t n, int64_t cycles, cudaStream_t stream) {
  int device, sms;
  TRY(cudaGetDevice(&device));
  TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  wait_and_double<<<BLOCKS_ON_AN_SM * sms, THREADS, 0, stream>>>(a, out, n, cycles);
  return cudaGetLastError();
}
