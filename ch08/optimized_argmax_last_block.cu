// 32 blocks for a row. Each leaves its winner in memory and counts itself; who counts last joins the 32 winners.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int BLOCKS = 32;  // for a row: a lane of a warp for each, in the end
constexpr int AT_ONCE = 4;  // loads of a thread on their way

// Neighbours that one instruction loads: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

struct Best {
  float logit;
  int id;
};

__device__ Best join(Best a, Best b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id) ? a : b;  // of equals, the first
}

__device__ Best join_warp(Best mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine = join(mine, {__shfl_xor_sync(~0u, mine.logit, lanes), __shfl_xor_sync(~0u, mine.id, lanes)});
  }
  return mine;
}

// The winner of this block's share of a row, in all lanes of the first warp; the others have none.
template <int width>
__device__ Best find(const float* __restrict__ row, int vocabulary) {
  __shared__ Best of_warps[THREADS / 32];
  const auto* pieces = reinterpret_cast<const Piece<width>*>(row);
  const int count = vocabulary / width, share = ceil_div(count, BLOCKS);
  const int end = min(int(blockIdx.x + 1) * share, count);
  Best mine = {-INFINITY, vocabulary};
  for (int first = blockIdx.x * share + threadIdx.x; first < end; first += AT_ONCE * THREADS) {
    Piece<width> piece[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) piece[k] = pieces[min(first + k * THREADS, end - 1)];  // twice does no harm
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        mine = join(mine, {piece[k].value[i], min(first + k * THREADS, end - 1) * width + i});
      }
    }
  }
  mine = join_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  return join_warp(of_warps[threadIdx.x % (THREADS / 32)]);
}

// Counts this block among those of its row that are done, and returns how many were before it. Release and acquire:
// what those wrote before they were counted is seen by this one. The last sets the count back to zero.
__device__ uint32_t count_done(uint32_t* done) {
  uint32_t before;
  constexpr int LAST = BLOCKS - 1;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(done), "n"(LAST) : "memory");
  return before;
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    find_and_join(const float* __restrict__ logits, float2* winners, uint32_t* done, int64_t* __restrict__ ids,
                  int vocabulary) {
  const int row = blockIdx.y;
  Best mine = find<width>(logits + int64_t(row) * vocabulary, vocabulary);
  if (threadIdx.x >= 32) return;
  uint32_t before = 0;
  if (threadIdx.x == 0) {
    __stcg(winners + row * BLOCKS + blockIdx.x, float2{mine.logit, __int_as_float(mine.id)});
    before = count_done(done + row);
  }
  if (__shfl_sync(~0u, before, 0) != BLOCKS - 1) return;
  __syncwarp();
  const float2 winner = __ldcg(winners + row * BLOCKS + threadIdx.x);
  mine = join_warp({winner.x, __float_as_int(winner.y)});
  if (threadIdx.x == 0) ids[row] = mine.id;
}

extern "C" int argmax(const float* logits, float* winners, int* done, int64_t* ids, int64_t rows, int64_t vocabulary,
                      cudaStream_t stream) {
  const auto kernel = vocabulary % 4 ? find_and_join<1> : find_and_join<4>;
  kernel<<<dim3(BLOCKS, rows), THREADS, 0, stream>>>(logits, reinterpret_cast<float2*>(winners),
                                                     reinterpret_cast<uint32_t*>(done), ids, int(vocabulary));
  return cudaGetLastError();
}
