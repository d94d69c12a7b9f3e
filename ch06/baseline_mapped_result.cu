// Iterate until the changes are small: after each kernel the host copies the largest change, four bytes, and decides.
#include "kernel.cuh"

constexpr int THREADS = 1024;  // one block: all of a problem this small
constexpr int WARPS = THREADS / 32;
constexpr int MOST = 1000;     // iterations, should the changes never become small
constexpr float INVERSE_PI = 0.318309886f;

__device__ float largest_of_warp(float value) {  // in lane 0
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value = fmaxf(value, __shfl_down_sync(~0u, value, half));
  return value;
}

__device__ float largest_of_block(float value) {  // in thread 0
  __shared__ float warps[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  value = largest_of_warp(value);
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  return warp == 0 ? largest_of_warp(warps[lane]) : 0.0f;
}

// One iteration for all orbits, from the mean anomaly where it is the first. The largest change, in thread 0.
__device__ float improve(const float* mean, const float* eccentricity, float* anomaly, int n, bool first) {
  float change = 0.0f;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float old = first ? mean[i] : anomaly[i];
    const float next = mean[i] + eccentricity[i] * INVERSE_PI * sinpif(old);
    anomaly[i] = next;
    change = fmaxf(change, fabsf(next - old));
  }
  return largest_of_block(change);
}

__global__ void __launch_bounds__(THREADS)
    iterate(const float* __restrict__ mean, const float* __restrict__ eccentricity, float* anomaly,
            float* change, int n, bool first) {
  const float largest = improve(mean, eccentricity, anomaly, n, first);
  if (threadIdx.x == 0) *change = largest;
}

// `change` is one float of the GPU's memory.
extern "C" int solve(const float* mean, const float* eccentricity, float* anomaly, float* change, int n,
                     float tolerance, cudaStream_t stream) {
  float seen = 2.0f * tolerance;
  for (int k = 0; k < MOST && seen > tolerance; ++k) {
    iterate<<<1, THREADS, 0, stream>>>(mean, eccentricity, anomaly, change, n, k == 0);
    TRY(cudaGetLastError());
    TRY(cudaMemcpyAsync(&seen, change, sizeof(seen), cudaMemcpyDeviceToHost, stream));
    TRY(cudaStreamSynchronize(stream));
  }
  return cudaSuccess;
}
