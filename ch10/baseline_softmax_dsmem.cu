// One block for a row: one read for its maximum and its sum, which go along together, and a second for the quotients.
#include "kernel.cuh"

#include <float.h>

constexpr int THREADS = 1024, WARPS = THREADS / 32;
constexpr int AT_ONCE = 4;  // loads of a thread on their way

// Neighbours that one instruction loads: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

// The sum of exponentials so far, on the scale of the largest element so far.
struct Total {
  float peak, sum;
};

__device__ Total join(Total a, Total b) {
  const float peak = fmaxf(a.peak, b.peak);
  return {peak, a.sum * expf(a.peak - peak) + b.sum * expf(b.peak - peak)};
}

__device__ Total join_warp(Total mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine = join(mine, {__shfl_xor_sync(~0u, mine.peak, lanes), __shfl_xor_sync(~0u, mine.sum, lanes)});
  }
  return mine;
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    softmax_twice(const float* __restrict__ x, float* __restrict__ out, int64_t columns) {
  __shared__ Total of_warps[WARPS];
  const auto* in = reinterpret_cast<const Piece<width>*>(x + blockIdx.x * columns);
  auto* to = reinterpret_cast<Piece<width>*>(out + blockIdx.x * columns);
  const int pieces = columns / width;

  Total mine = {-FLT_MAX, 0.0f};  // not infinity, whose difference to itself is no number
#pragma unroll AT_ONCE
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    const Piece<width> piece = in[at];
    float peak = mine.peak;
#pragma unroll
    for (int i = 0; i < width; ++i) peak = fmaxf(peak, piece.value[i]);
    mine = {peak, mine.sum * expf(mine.peak - peak)};
#pragma unroll
    for (int i = 0; i < width; ++i) mine.sum += expf(piece.value[i] - peak);
  }
  mine = join_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  const Total row = join_warp(of_warps[threadIdx.x % WARPS]);
  const float scale = 1.0f / row.sum;

#pragma unroll AT_ONCE
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    Piece<width> piece = in[at];
#pragma unroll
    for (int i = 0; i < width; ++i) piece.value[i] = expf(piece.value[i] - row.peak) * scale;
    to[at] = piece;
  }
}

extern "C" int softmax(const float* x, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const auto kernel = columns % 4 ? softmax_twice<1> : softmax_twice<4>;
  kernel<<<rows, THREADS, 0, stream>>>(x, out, columns);
  return cudaGetLastError();
}
