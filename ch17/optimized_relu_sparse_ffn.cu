// One kernel goes through both matrices: sixteen warps take a neuron each, and the block adds those above zero at once.
#include "kernel.cuh"

constexpr int THREADS = 512, WARPS = THREADS / 32, RESIDENT = 2;  // of a block; blocks of a multiprocessor
constexpr int AHEAD = 4;                                          // pieces of a row on their way to a lane
constexpr int PIECE = 8, MOST = 8192;                             // numbers of 16 bytes; columns of a row
constexpr int OWN = MOST / (THREADS * PIECE);                     // pieces of the answer that a thread adds up
constexpr int LISTS = 3;                                          // one is written, one is read, one is cleared

struct Live {
  int count;
  int neuron[WARPS];
  float square[WARPS];
};

// Two numbers of a word, the lower one first.
__device__ __forceinline__ float2 widened(uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u)};
}

__device__ __forceinline__ float add_products(float sum, const uint4& a, const uint4& b) {
  const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = widened(left[i]), y = widened(right[i]);
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
  }
  return sum;
}

// Eight numbers of a row from a column on; zeros behind the row's end, and of rows that do not exist.
__device__ __forceinline__ uint4 load(const bf16* matrix, int64_t row, int column, int rows, int width) {
  if (row >= rows || column >= width) return {};
  return __ldcs(reinterpret_cast<const uint4*>(matrix + row * width + column));
}

// `ticket` counts the batches of WARPS neurons that were taken, but for each block's first.
__global__ void __launch_bounds__(THREADS, RESIDENT)
    add_live(const bf16* __restrict__ up, const bf16* __restrict__ x, const bf16* __restrict__ down,
             float* __restrict__ partial, int* __restrict__ ticket, int width, int wide) {
  __shared__ uint4 token[MOST / PIECE];
  __shared__ Live lists[LISTS];
  __shared__ int following[2];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int batches = ceil_div(wide, WARPS), groups = ceil_div(width, 32 * PIECE * AHEAD);
  for (int piece = thread; piece < MOST / PIECE; piece += THREADS) token[piece] = load(x, 0, piece * PIECE, 1, width);
  if (thread < LISTS) lists[thread].count = 0;
  if (thread == 0) following[1] = gridDim.x + atomicAdd(ticket, 1);
  __syncthreads();

  int batch = blockIdx.x;
  float total[OWN][PIECE] = {};
  uint4 slots[AHEAD];
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) {
    slots[i] = load(up, int64_t(batch) * WARPS + warp, (i * 32 + lane) * PIECE, wide, width);
  }
  for (int turn = 0; batch < batches; ++turn) {
    const int next = following[(turn + 1) % 2];
    int after = 0;
    if (thread == 0) after = gridDim.x + atomicAdd(ticket, 1);
    const int64_t row = int64_t(batch) * WARPS + warp, next_row = int64_t(next) * WARPS + warp;
    float sum = 0.0f;
    for (int group = 0; group < groups; ++group) {
      const bool last = group + 1 == groups;
      const int64_t from = last ? next_row : row;
      const int start = last ? 0 : (group + 1) * AHEAD * 32 * PIECE;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const uint4 weights = slots[i];
        slots[i] = load(up, from, start + (i * 32 + lane) * PIECE, wide, width);
        sum = add_products(sum, weights, token[(group * AHEAD + i) * 32 + lane]);
      }
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    Live& live = lists[turn % LISTS];
    if (lane == 0 && sum > 0.0f) {
      const int place = atomicAdd(&live.count, 1);
      live.neuron[place] = static_cast<int>(row);
      live.square[place] = sum * sum;
    }
    if (thread == 0) following[turn % 2] = after;
    __syncthreads();
    if (thread == 0) lists[(turn + 2) % LISTS].count = 0;  // its last readers have passed the barrier
    const int count = live.count;
#pragma unroll 2
    for (int i = 0; i < count; ++i) {
      const float square = live.square[i];
      const int64_t neuron = live.neuron[i];
#pragma unroll
      for (int own = 0; own < OWN; ++own) {
        const uint4 weights = load(down, neuron, (own * THREADS + thread) * PIECE, wide, width);
        const uint32_t words[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float2 both = widened(words[k]);
          total[own][2 * k] = fmaf(both.x, square, total[own][2 * k]);
          total[own][2 * k + 1] = fmaf(both.y, square, total[own][2 * k + 1]);
        }
      }
    }
    batch = next;
  }
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    const int column = (own * THREADS + thread) * PIECE;
    if (column >= width) continue;
    float4* to = reinterpret_cast<float4*>(partial + int64_t(blockIdx.x) * width + column);
    to[0] = {total[own][0], total[own][1], total[own][2], total[own][3]};
    to[1] = {total[own][4], total[own][5], total[own][6], total[own][7]};
  }
}

constexpr int LANES = 8, PARTS = 32;  // of a block that adds: four columns each, and parts of the list of blocks

__global__ void __launch_bounds__(LANES * PARTS)
    add_blocks(const float* __restrict__ partial, bf16* __restrict__ out, int* __restrict__ ticket, int width,
               int blocks) {
  __shared__ float4 sums[PARTS][LANES];
  const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES, column = (blockIdx.x * LANES + lane) * 4;
  float4 sum = {};
  if (column < width) {
#pragma unroll 4
    for (int block = part; block < blocks; block += PARTS) {
      const float4 one = *reinterpret_cast<const float4*>(partial + int64_t(block) * width + column);
      sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
  }
  sums[part][lane] = sum;
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) *ticket = 0;  // for the next step: no block of this kernel reads it
  if (threadIdx.x >= LANES * 4) return;
  const int own = threadIdx.x, at = blockIdx.x * LANES * 4 + own;
  float whole = 0.0f;
  for (int i = 0; i < PARTS; ++i) whole += reinterpret_cast<const float*>(sums[i])[own];
  if (at < width) out[at] = __float2bfloat16(whole);
}

// up and down [wide, width], x and out [width], partial [blocks, width]; *ticket is zero, and is zero again afterwards.
extern "C" int sparse_ffn(const __nv_bfloat16* up, const __nv_bfloat16* x, const __nv_bfloat16* down, float* partial,
                          int* ticket, __nv_bfloat16* out, int width, int wide, int blocks, cudaStream_t stream) {
  if (width < 1 || width > MOST || width % PIECE != 0 || wide < 1 || blocks < 1) return cudaErrorInvalidValue;
  add_live<<<blocks, THREADS, 0, stream>>>(up, x, down, partial, ticket, width, wide);
  TRY(cudaGetLastError());
  add_blocks<<<ceil_div(width, LANES * 4), LANES * PARTS, 0, stream>>>(partial, out, ticket, width, blocks);
  return cudaGetLastError();
}
