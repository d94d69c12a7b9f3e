// Divide each vector by its length in one kernel: its values wait in registers for the barrier of the grid. Between
// arriving there and waiting, the loads of the next vector are begun, which keep the memory at work.
#include "kernel.cuh"
#include <cuda_pipeline.h>

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int EARLY = 4;  // pieces of the next vector that come while blocks exchange sums: more would hold up the sums
constexpr int MOST_BLOCKS = 1024;  // the caller has so many places for sums of a vector

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

// Stores a block's sum for all blocks to see. Sum and mark are one word of 8 bytes, so no fence has to order them.
__device__ void publish(float own, uint64_t* place) {
  __shared__ float warps[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  own = sum_of_warp(own);
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  if (warp == 0) {
    own = sum_of_warp(lane < WARPS ? warps[lane] : 0.0f);
    if (lane == 0) {
      const uint64_t word = uint64_t(1) << 32 | __float_as_uint(own);
      asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(place), "l"(word) : "memory");
    }
  }
}

// The sum of all blocks, when all of them have stored theirs. They are on the GPU at once, so none waits for ever.
__device__ float collect(const uint64_t* places) {
  __shared__ float all;
  if (threadIdx.x < 32) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += 32) {
      uint64_t word;
      do {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(places + i) : "memory");
      } while (word == 0);
      sum += __uint_as_float(uint32_t(word));
    }
    sum = sum_of_warp(sum);
    if (threadIdx.x == 0) all = sum;
  }
  __syncthreads();
  return all;
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

// Begins to copy a thread's piece into shared memory.
template <int width>
__device__ void fetch(Piece<width>* ahead, const Piece<width>* from, int k, int own) {
  if (k < own) __pipeline_memcpy_async(ahead + k * THREADS, from + k * THREADS, sizeof(Piece<width>));
}

// A thread holds `many` pieces in registers, and as many of the next vector in shared memory.
template <int width, int many>
__global__ void __launch_bounds__(THREADS)
    normalize_all(const float* __restrict__ x, float* __restrict__ out, uint64_t* sums, int64_t vectors, int64_t n) {
  extern __shared__ float4 memory[];
  const auto ahead = reinterpret_cast<Piece<width>*>(memory) + threadIdx.x;  // no other thread touches these
  const auto [first, own] = share_of(n / width);
#pragma unroll 1
  for (int k = own; k < many; ++k) ahead[k * THREADS] = {};  // places that nothing is copied to
#pragma unroll
  for (int k = 0; k < many; ++k) fetch(ahead, reinterpret_cast<const Piece<width>*>(x) + first, k, own);
  __pipeline_commit();
  for (int64_t v = 0; v < vectors; ++v) {
    const auto from = reinterpret_cast<const Piece<width>*>(x + v * n) + first;
    const auto to = reinterpret_cast<Piece<width>*>(out + v * n) + first;
    const int next = v + 1 < vectors ? own : 0;  // pieces of the next vector
    Piece<width> held[many];
    float sum = 0.0f;
    __pipeline_wait_prior(0);
#pragma unroll
    for (int k = 0; k < many; ++k) {
      held[k] = ahead[k * THREADS];
      sum += squares(held[k]);
    }
#pragma unroll 1
    for (int k = many; k < own; ++k) sum += squares(from[k * THREADS]);  // more than a small GPU can hold
#pragma unroll
    for (int k = 0; k < EARLY; ++k) fetch(ahead, from + n / width, k, next);
    publish(sum, sums + v * gridDim.x);
    const float factor = rsqrtf(collect(sums + v * gridDim.x));
#pragma unroll
    for (int k = 0; k < many; ++k) {
      if (k < own) to[k * THREADS] = scaled(held[k], factor);
      if (k >= EARLY) fetch(ahead, from + n / width, k, next);
    }
    __pipeline_commit();
#pragma unroll 1
    for (int k = many; k < own; ++k) to[k * THREADS] = scaled(from[k * THREADS], factor);
  }
}

template <int width, int many>
cudaError_t launch(const float* x, float* out, int64_t* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  const auto kernel = reinterpret_cast<const void*>(normalize_all<width, many>);
  constexpr int bytes = many * THREADS * sizeof(Piece<width>);
  int resident = 0;
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  TRY(count_resident(&resident, kernel, THREADS, bytes));
  resident = resident < MOST_BLOCKS ? resident : MOST_BLOCKS;
  TRY(cudaMemsetAsync(sums, 0, vectors * resident * sizeof(uint64_t), stream));
  void* arguments[] = {&x, &out, &sums, &vectors, &n};
  return cudaLaunchCooperativeKernel(kernel, dim3(resident), dim3(THREADS), arguments, bytes, stream);
}

// 16 pieces a thread where a block may have 128 KiB of shared memory, 8 elsewhere.
extern "C" int normalize(const float* x, float* out, int64_t* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  int most = 0;
  TRY(query_device(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  if (n % 4) return launch<1, 16>(x, out, sums, vectors, n, stream);
  return most > 130 << 10 ? launch<4, 16>(x, out, sums, vectors, n, stream)
                          : launch<4, 8>(x, out, sums, vectors, n, stream);
}
