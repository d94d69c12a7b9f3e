// 32 blocks for a row. Each leaves its winner in memory, and a second kernel joins the 32 winners.
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

template <int width>
__global__ void __launch_bounds__(THREADS)
    find_winners(const float* __restrict__ logits, float2* __restrict__ winners, int vocabulary) {
  const int row = blockIdx.y;
  const Best mine = find<width>(logits + int64_t(row) * vocabulary, vocabulary);
  if (threadIdx.x == 0) winners[row * BLOCKS + blockIdx.x] = {mine.logit, __int_as_float(mine.id)};
}

__global__ void join_winners(const float2* __restrict__ winners, int64_t* __restrict__ ids) {
  const float2 winner = winners[blockIdx.x * BLOCKS + threadIdx.x];
  const Best best = join_warp({winner.x, __float_as_int(winner.y)});
  if (threadIdx.x == 0) ids[blockIdx.x] = best.id;
}

extern "C" int argmax(const float* logits, float* winners, int64_t* ids, int64_t rows, int64_t vocabulary,
                      cudaStream_t stream) {
  const auto kernel = vocabulary % 4 ? find_winners<1> : find_winners<4>;
  auto* pairs = reinterpret_cast<float2*>(winners);
  kernel<<<dim3(BLOCKS, rows), THREADS, 0, stream>>>(logits, pairs, int(vocabulary));
  TRY(cudaGetLastError());
  join_winners<<<rows, BLOCKS, 0, stream>>>(pairs, ids);
  return cudaGetLastError();
}
