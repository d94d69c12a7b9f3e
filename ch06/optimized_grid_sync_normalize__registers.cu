// Divide each vector by its length in one kernel: values wait in registers while the whole grid adds up their squares.
#include "kernel.cuh"
#include <cooperative_groups.h>

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int HELD = 16;  // pieces that a thread holds: those of a block fill half of a multiprocessor's registers

// Vectors lie one behind the other, so pieces of 16 bytes need lengths that are multiples of 4; others have `width` 1.
template <int width>
struct alignas(4 * width) Piece {
  float at[width];
};

template <int width>
__device__ float squares(Piece<width> piece) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < width; ++i) sum += piece.at[i] * piece.at[i];
  return sum;
}

template <int width>
__device__ Piece<width> scaled(Piece<width> piece, float factor) {
#pragma unroll
  for (int i = 0; i < width; ++i) piece.at[i] *= factor;
  return piece;
}

__device__ float sum_of_warp(float value) {  // in lane 0
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_down_sync(~0u, value, half);
  return value;
}

// Adds what all threads of a block have to `sum`.
__device__ void add_up(float own, float* sum) {
  __shared__ float warps[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  own = sum_of_warp(own);
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  if (warp == 0) {
    own = sum_of_warp(lane < WARPS ? warps[lane] : 0.0f);
    if (lane == 0) atomicAdd(sum, own);
  }
}

// Which pieces of a vector are a thread's: its block has one stretch, of a multiple of 32, and the threads of the block
// take turns, so `count` pieces stand THREADS apart from `first` on.
struct Share {
  int64_t first;
  int count;
};

__device__ Share share_of(int64_t pieces) {
  const int64_t whole = ceil_div(ceil_div(pieces, gridDim.x), 32) * 32, begin = blockIdx.x * whole + threadIdx.x;
  const int64_t end = min((blockIdx.x + 1) * whole, pieces);
  return {begin, begin < end ? int(ceil_div(end - begin, THREADS)) : 0};
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    normalize_all(const float* __restrict__ x, float* __restrict__ out, float* sums, int64_t vectors, int64_t n) {
  const auto grid = cooperative_groups::this_grid();
  const auto [first, own] = share_of(n / width);
  for (int64_t v = 0; v < vectors; ++v) {
    const auto from = reinterpret_cast<const Piece<width>*>(x + v * n) + first;
    const auto to = reinterpret_cast<Piece<width>*>(out + v * n) + first;
    Piece<width> held[HELD] = {};
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      if (k < own) held[k] = from[k * THREADS];
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; ++k) sum += squares(held[k]);
#pragma unroll 1
    for (int k = HELD; k < own; ++k) sum += squares(from[k * THREADS]);  // more than a small GPU can hold
    add_up(sum, sums + v);
    grid.sync();
    const float factor = rsqrtf(__ldcg(sums + v));
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      if (k < own) to[k * THREADS] = scaled(held[k], factor);
    }
#pragma unroll 1
    for (int k = HELD; k < own; ++k) to[k * THREADS] = scaled(from[k * THREADS], factor);
  }
}

template <int width>
cudaError_t launch(const float* x, float* out, float* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  int resident = 0;
  TRY(count_resident(&resident, normalize_all<width>, THREADS));
  TRY(cudaMemsetAsync(sums, 0, vectors * sizeof(float), stream));
  void* arguments[] = {&x, &out, &sums, &vectors, &n};
  const auto kernel = reinterpret_cast<const void*>(normalize_all<width>);
  return cudaLaunchCooperativeKernel(kernel, dim3(resident), dim3(THREADS), arguments, 0, stream);
}

extern "C" int normalize(const float* x, float* out, float* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  return n % 4 == 0 ? launch<4>(x, out, sums, vectors, n, stream) : launch<1>(x, out, sums, vectors, n, stream);
}
