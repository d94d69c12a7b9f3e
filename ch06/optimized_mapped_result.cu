// Iterate until the changes are small: kernels report to where the host is looking, which launches a few of them ahead.
#include "kernel.cuh"
#include <string.h>

constexpr int THREADS = 1024;      // one block: all of a problem this small
constexpr int WARPS = THREADS / 32;
constexpr int MOST = 1000;         // iterations, should the changes never become small
constexpr int AHEAD = 3;           // kernels in the queue while the host waits for the report of the one before them
constexpr int PATIENCE = 1 << 16;  // looks at the report between two questions whether the kernel has failed
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

// The report is one word of 8 bytes, so that it arrives whole: the number of the iteration, and the bits of its change.
__global__ void __launch_bounds__(THREADS)
    iterate(const float* __restrict__ mean, const float* __restrict__ eccentricity, float* anomaly,
            volatile int64_t* report, int n, int iteration) {
  const float largest = improve(mean, eccentricity, anomaly, n, iteration == 1);
  if (threadIdx.x == 0) *report = int64_t(iteration) << 32 | __float_as_uint(largest);
}

// Looks at the report until it is that of `iteration` or of a later one, which is as near.
static cudaError_t await(const volatile int64_t* report, int iteration, float* change, cudaStream_t stream) {
  for (int64_t looks = 1;; ++looks) {
    const bool ask = looks % PATIENCE == 0;
    const cudaError_t state = ask ? cudaStreamQuery(stream) : cudaErrorNotReady;
    const int64_t word = *report;
    if (word >> 32 >= iteration) {
      const auto bits = uint32_t(word);
      memcpy(change, &bits, sizeof(bits));
      return cudaSuccess;
    }
    if (state != cudaErrorNotReady) return state ? state : cudaErrorUnknown;  // it ended and has not reported
  }
}

// `report` is one word of page-locked host memory, which the GPU may write at the same address.
extern "C" int solve(const float* mean, const float* eccentricity, float* anomaly, int64_t* report, int n,
                     float tolerance, cudaStream_t stream) {
  volatile int64_t* word = report;
  *word = 0;  // what the last call left; its kernels have all reported
  float seen = 2.0f * tolerance;
  int launched = 0;
  for (int k = 1; k <= MOST && seen > tolerance; ++k) {
    for (; launched < k + AHEAD; ++launched) {
      iterate<<<1, THREADS, 0, stream>>>(mean, eccentricity, anomaly, word, n, launched + 1);
      TRY(cudaGetLastError());
    }
    TRY(await(word, k, &seen, stream));
  }
  return await(word, launched, &seen, stream);  // those behind the last one needed bring the orbits nearer still
}
