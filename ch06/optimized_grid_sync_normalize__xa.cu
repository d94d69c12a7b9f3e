// Divide each vector by its length in one kernel: its values wait on chip for the barrier of all blocks that share it.
// Blocks of two groups share each multiprocessor and take vectors in turns: while one waits, the other loads or stores.
#include "kernel.cuh"
#include <cuda_pipeline.h>

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int GROUPS = 2;  // of blocks: one of each on a multiprocessor
constexpr int HELD = 8;    // pieces that a thread has in registers

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

// Sums and arrivals of a vector.
struct Total {
  float sum;
  unsigned arrived;
};

// Waits for all `members` of a group to have added to a sum. All blocks are on the GPU at once, so this ends.
__device__ void await(const Total* total, unsigned members) {
  unsigned seen;
  int turns = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(&total->arrived) : "memory");
    if (++turns == 1 << 22) __trap();  // seconds have gone by
  } while (seen < members);
}

// The sum of what all threads of a group's blocks have.
__device__ float add_up(float own, Total* total, unsigned members) {
  __shared__ float warps[WARPS], all;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  own = sum_of_warp(own);
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  if (warp == 0) {
    own = sum_of_warp(lane < WARPS ? warps[lane] : 0.0f);
    if (lane == 0) {
      atomicAdd(&total->sum, own);
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(&total->arrived) : "memory");
      await(total, members);
      all = __ldcg(&total->sum);
    }
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

__device__ Share share_of(int64_t pieces, unsigned member, unsigned members) {
  const int64_t whole = ceil_div(ceil_div(pieces, members), 32) * 32, begin = member * whole + threadIdx.x;
  const int64_t end = min((member + 1) * whole, pieces);
  return {begin, begin < end ? int(ceil_div(end - begin, THREADS)) : 0};
}

// Begins to copy a thread's first pieces into shared memory.
template <int stored, int width>
__device__ void fetch(Piece<width>* place, const Piece<width>* from, int own) {
#pragma unroll
  for (int k = 0; k < stored; ++k) {
    if (k < own) __pipeline_memcpy_async(place + k * THREADS, from + k * THREADS, sizeof(Piece<width>));
  }
  __pipeline_commit();
}

// A thread has `stored` pieces of a vector in shared memory, and the next `HELD` in registers.
template <int width, int stored>
__global__ void __launch_bounds__(THREADS, GROUPS)
    normalize_all(const float* __restrict__ x, float* __restrict__ out, Total* totals, int64_t vectors, int64_t n) {
  extern __shared__ float4 memory[];
  const auto place = reinterpret_cast<Piece<width>*>(memory) + threadIdx.x;  // no other thread touches these
  const unsigned group = blockIdx.x % GROUPS, members = gridDim.x / GROUPS;
  const auto [first, own] = share_of(n / width, blockIdx.x / GROUPS, members);
  const auto from_of = [&](int64_t v) { return reinterpret_cast<const Piece<width>*>(x + v * n) + first; };
  if (group >= vectors) return;
  if (group > 0) {  // half a vector behind the other group, so that one stores while the other loads
    if (threadIdx.x == 0) await(totals, members);
    __syncthreads();
  }
#pragma unroll 1
  for (int k = own; k < stored; ++k) place[k * THREADS] = {};  // places that nothing is copied to
  fetch<stored>(place, from_of(group), own);
  for (int64_t v = group; v < vectors; v += GROUPS) {
    const auto from = from_of(v);
    const auto to = reinterpret_cast<Piece<width>*>(out + v * n) + first;
    Piece<width> held[HELD] = {};
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      if (stored + k < own) held[k] = from[(stored + k) * THREADS];
    }
    float sum = 0.0f;
    __pipeline_wait_prior(0);
#pragma unroll
    for (int k = 0; k < stored; ++k) sum += squares(place[k * THREADS]);
#pragma unroll
    for (int k = 0; k < HELD; ++k) sum += squares(held[k]);
#pragma unroll 1
    for (int k = stored + HELD; k < own; ++k) sum += squares(from[k * THREADS]);  // more than a small GPU can hold
    const float factor = rsqrtf(add_up(sum, totals + v, members));
#pragma unroll
    for (int k = 0; k < stored; ++k) {
      if (k < own) to[k * THREADS] = scaled(place[k * THREADS], factor);
    }
    if (v + GROUPS < vectors) fetch<stored>(place, from_of(v + GROUPS), own);
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      if (stored + k < own) to[(stored + k) * THREADS] = scaled(held[k], factor);
    }
#pragma unroll 1
    for (int k = stored + HELD; k < own; ++k) to[k * THREADS] = scaled(from[k * THREADS], factor);
  }
}

template <int width, int stored>
cudaError_t launch(const float* x, float* out, float* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  const auto kernel = reinterpret_cast<const void*>(normalize_all<width, stored>);
  constexpr int bytes = stored * THREADS * sizeof(Piece<width>);
  int resident = 0;
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  TRY(count_resident(&resident, kernel, THREADS, bytes));
  auto totals = reinterpret_cast<Total*>(sums);
  TRY(cudaMemsetAsync(totals, 0, vectors * sizeof(Total), stream));
  void* arguments[] = {&x, &out, &totals, &vectors, &n};
  const dim3 blocks(resident / GROUPS * GROUPS);
  return cudaLaunchCooperativeKernel(kernel, blocks, dim3(THREADS), arguments, bytes, stream);
}

// 8 pieces a thread in shared memory where a multiprocessor has room for two such blocks, 4 elsewhere.
extern "C" int normalize(const float* x, float* out, float* sums, int64_t vectors, int64_t n, cudaStream_t stream) {
  int most = 0;
  TRY(query_device(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  if (n % 4) return launch<1, 8>(x, out, sums, vectors, n, stream);
  return most > 130 << 10 ? launch<4, 8>(x, out, sums, vectors, n, stream)
                          : launch<4, 4>(x, out, sums, vectors, n, stream);
}
