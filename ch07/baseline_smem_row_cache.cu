// Standardise rows, a block to each, in three walks through global memory: mean, variance, result.
#include "kernel.cuh"

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr float EPSILON = 1e-5f;

// Neighbours that one instruction moves: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

// The sum over all threads of a block, in each of them.
__device__ float sum_of_block(float value, float (&of_warps)[WARPS]) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
  __syncthreads();  // all have read the last sum's parts
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float all = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) all += of_warps[w];
  return all;
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    standardise(const float* __restrict__ x, float* __restrict__ out, int64_t columns) {
  __shared__ float of_warps[WARPS];
  const int pieces = int(columns / width);
  const auto* from = reinterpret_cast<const Piece<width>*>(x) + int64_t(blockIdx.x) * pieces;
  auto* to = reinterpret_cast<Piece<width>*>(out) + int64_t(blockIdx.x) * pieces;

  float sum = 0.0f, squares = 0.0f;
#pragma unroll 4
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    const Piece<width> piece = from[at];
#pragma unroll
    for (int i = 0; i < width; ++i) sum += piece.value[i];
  }
  const float mean = sum_of_block(sum, of_warps) / columns;
#pragma unroll 4
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    const Piece<width> piece = from[at];
#pragma unroll
    for (int i = 0; i < width; ++i) squares += (piece.value[i] - mean) * (piece.value[i] - mean);
  }
  const float scale = rsqrtf(sum_of_block(squares, of_warps) / columns + EPSILON);
#pragma unroll 4
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    Piece<width> piece = from[at];
#pragma unroll
    for (int i = 0; i < width; ++i) piece.value[i] = (piece.value[i] - mean) * scale;
    to[at] = piece;
  }
}

extern "C" int standardise_rows(const float* x, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (columns % 4 == 0) {
    standardise<4><<<rows, THREADS, 0, stream>>>(x, out, columns);
  } else {
    standardise<1><<<rows, THREADS, 0, stream>>>(x, out, columns);
  }
  return cudaGetLastError();
}
