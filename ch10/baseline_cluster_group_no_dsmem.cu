// One block for a plane: one read for its moments, which go along together, and a second for the quotients.
#include "kernel.cuh"

constexpr int THREADS = 1024, WARPS = THREADS / 32;
constexpr int AT_ONCE = 4;  // loads of a thread on their way
constexpr float EPSILON = 1e-5f;

// Neighbours that one instruction loads: four where planes begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

__device__ float2 add_warp(float2 mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine.x += __shfl_xor_sync(~0u, mine.x, lanes);
    mine.y += __shfl_xor_sync(~0u, mine.y, lanes);
  }
  return mine;
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    normalize_twice(const float* __restrict__ x, float* __restrict__ out, int64_t pixels) {
  __shared__ float2 of_warps[WARPS];
  const auto* in = reinterpret_cast<const Piece<width>*>(x + blockIdx.x * pixels);
  auto* to = reinterpret_cast<Piece<width>*>(out + blockIdx.x * pixels);
  const int pieces = pixels / width;

  // Sums of the distance to one of the values: of the values themselves, a far mean would take the variance's digits.
  const float near = x[blockIdx.x * pixels];
  float2 sum = {0.0f, 0.0f};
#pragma unroll AT_ONCE
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    const Piece<width> piece = in[at];
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float apart = piece.value[i] - near;
      sum = {sum.x + apart, sum.y + apart * apart};
    }
  }
  sum = add_warp(sum);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  const float2 of_plane = add_warp(of_warps[threadIdx.x % WARPS]);
  const float apart = of_plane.x / pixels, mean = near + apart;
  const float scale = rsqrtf(of_plane.y / pixels - apart * apart + EPSILON);

#pragma unroll AT_ONCE
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    Piece<width> piece = in[at];
#pragma unroll
    for (int i = 0; i < width; ++i) piece.value[i] = (piece.value[i] - mean) * scale;
    to[at] = piece;
  }
}

extern "C" int normalize(const float* x, float* out, int64_t planes, int64_t pixels, cudaStream_t stream) {
  const auto kernel = pixels % 4 ? normalize_twice<1> : normalize_twice<4>;
  kernel<<<planes, THREADS, 0, stream>>>(x, out, pixels);
  return cudaGetLastError();
}
