// Sum an array in registers: threads load 16 bytes four times over before they add, and each block adds its sum once.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int LOADS = 4;   // of 16 bytes, in flight in each thread
constexpr int ROUNDS = 4;  // of full grids: a multiprocessor that is served faster than others then takes more blocks

__device__ float sum_of_warp(float value) {  // in lane 0
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_down_sync(~0u, value, half);
  return value;
}

__device__ float sum_of(float4 piece) { return (piece.x + piece.y) + (piece.z + piece.w); }

// What thread `first` of `threads` sums of `count` pieces.
__device__ float sum_of_thread(const float4* pieces, int64_t count, int64_t first, int64_t threads) {
  float own = 0.0f;
  int64_t i = first;
#pragma unroll 1
  for (; i + (LOADS - 1) * threads < count; i += LOADS * threads) {
    float4 piece[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) piece[k] = pieces[i + k * threads];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) own += sum_of(piece[k]);
  }
#pragma unroll 1
  for (; i < count; i += threads) own += sum_of(pieces[i]);
  return own;
}

__global__ void __launch_bounds__(THREADS) sum_in_registers(const float* __restrict__ a, float* out, int64_t n) {
  __shared__ float warps[WARPS];
  const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x, threads = int64_t(gridDim.x) * THREADS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float own = sum_of_thread(reinterpret_cast<const float4*>(a), n / 4, first, threads);
  if (n / 4 * 4 + first < n) own += a[n / 4 * 4 + first];  // up to three elements are left over
  own = sum_of_warp(own);
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  if (warp == 0) {
    const float all = sum_of_warp(lane < WARPS ? warps[lane] : 0.0f);
    if (lane == 0) atomicAdd(out, all);
  }
}

extern "C" int sum(const float* a, float* out, int64_t n, cudaStream_t stream) {
  int resident = 0;
  TRY(count_resident(&resident, sum_in_registers, THREADS));
  const int64_t enough = ceil_div(n, 4 * LOADS * THREADS), full = int64_t(resident) * ROUNDS;
  TRY(cudaMemsetAsync(out, 0, sizeof(float), stream));
  sum_in_registers<<<enough < full ? enough : full, THREADS, 0, stream>>>(a, out, n);
  return cudaGetLastError();
}
