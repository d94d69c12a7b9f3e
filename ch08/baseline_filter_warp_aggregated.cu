// Each number that is kept takes its place by an atomic addition to the one counter. The compiler joins those of a warp.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    filter_one(const float* __restrict__ x, float* __restrict__ out, int* count, int64_t n, int64_t room) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= n || !(x[i] > 0.0f)) return;
  const int place = atomicAdd(count, 1);
  if (place < room) out[place] = x[i];
}

// Fails with cudaErrorInvalidValue where an int cannot count them.
extern "C" int filter(const float* x, float* out, int* count, int64_t n, int64_t room, cudaStream_t stream) {
  if (n > INT32_MAX) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(count, 0, sizeof(int), stream));
  filter_one<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(x, out, count, n, room);
  return cudaGetLastError();
}
