// Divide each vector by its length in two kernels, one for the sums of squares and one that reads everything again.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int LOADS = 4;   // of a thread, begun before the first is used
constexpr int ROUNDS = 4;  // of full grids: a multiprocessor that is served faster than others then takes more blocks

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

__device__ float sum_of_warp(float value) {  // in lane 0
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_down_sync(~0u, value, half);
  return value;
}

// A row of the grid a vector.
template <int width>
__global__ void __launch_bounds__(THREADS) add_squares(const float* __restrict__ x, float* sums, int64_t n) {
  __shared__ float warps[WARPS];
  const auto from = reinterpret_cast<const Piece<width>*>(x + blockIdx.y * n);
  const int64_t pieces = n / width, stride = int64_t(gridDim.x) * THREADS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float own = 0.0f;
  int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
#pragma unroll 1
  for (; i + (LOADS - 1) * stride < pieces; i += LOADS * stride) {
    Piece<width> piece[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) piece[k] = from[i + k * stride];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) own += squares(piece[k]);
  }
#pragma unroll 1
  for (; i < pieces; i += stride) own += squares(from[i]);
  own = sum_of_warp(own);
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  if (warp == 0) {
    const float all = sum_of_warp(lane < WARPS ? warps[lane] : 0.0f);
    if (lane == 0) atomicAdd(sums + blockIdx.y, all);
  }
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    scale(const float* __restrict__ x, const float* __restrict__ sums, float* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= n / width) return;
  auto piece = reinterpret_cast<const Piece<width>*>(x + blockIdx.y * n)[i];
  const float factor = rsqrtf(sums[blockIdx.y]);
#pragma unroll
  for (int k = 0; k < width; ++k) piece.at[k] *= factor;
  reinterpret_cast<Piece<width>*>(out + blockIdx.y * n)[i] = piece;
}

template <int width>
cudaError_t launch(const float* x, float* out, float* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  int resident = 0;
  TRY(count_resident(&resident, add_squares<width>, THREADS));
  TRY(cudaMemsetAsync(sums, 0, vectors * sizeof(float), stream));
  const int64_t full = ceil_div(int64_t(resident) * ROUNDS, vectors);
  const int64_t enough = ceil_div(n, width * LOADS * THREADS);
  add_squares<width><<<dim3(enough < full ? enough : full, vectors), THREADS, 0, stream>>>(x, sums, n);
  scale<width><<<dim3(ceil_div(n, width * THREADS), vectors), THREADS, 0, stream>>>(x, sums, out, n);
  return cudaGetLastError();
}

extern "C" int normalize(const float* x, float* out, float* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  return n % 4 == 0 ? launch<4>(x, out, sums, vectors, n, stream) : launch<1>(x, out, sums, vectors, n, stream);
}
