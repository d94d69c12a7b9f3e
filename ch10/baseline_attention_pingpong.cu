// Both warpgroups of a block load, multiply and find weights in step: the tensor cores wait while they do the last.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "special.cuh"
#include "wgmma.cuh"

constexpr int WIDTH = 128, QUERIES = 128, KEYS = 128;  // of a head, and of tiles, in two halves of 64 columns
constexpr int THREADS = 2 * GROUP_THREADS;             // 64 queries a warpgroup
constexpr int STAGES = 2;

struct Shared {
  bf16 q[2][QUERIES * ROW];
  bf16 k[STAGES][2][KEYS * ROW], v[STAGES][2][KEYS * ROW];
  Barrier full[STAGES];
};

// Begins the product of 64 queries of a warpgroup with KEYS keys.
__device__ void start_scores(float (&score)[64], const bf16 (&q)[2][QUERIES * ROW], const bf16 (&k)[2][KEYS * ROW],
                             int group) {
#pragma unroll
  for (int i = 0; i < 64; ++i) score[i] = 0.0f;
  multiply_row(score, q[0] + group * 64 * ROW, k[0]);
  multiply_row(score, q[1] + group * 64 * ROW, k[1]);
}

// Begins that of weights with KEYS values. Of 16 keys a descriptor says where the last eight are, 1024 bytes on, and
// where the other half of the width is: a tile further. The next 16 keys are 2048 bytes on.
__device__ void start_sums(float (&sum)[64], const uint32_t (&weights)[32], const bf16 (&v)[2][KEYS * ROW]) {
  const uint64_t rows = descriptor(v[0]) + (uint64_t(sizeof(v[0]) / 16 - 1) << 16);
  hold(sum);
  fence_products();
#pragma unroll
  for (int step = 0; step < KEYS / 16; ++step) multiply_held(sum, weights + 4 * step, rows + 128 * step);
  commit_products();
  hold(sum);
}

// Scores become weights, on the scale of the largest so far; `shrink` is by how much that has made older ones smaller.
// A thread has two rows, which three others share; `left` keys count.
__device__ void weigh(float (&score)[64], float (&peak)[2], float (&total)[2], float (&shrink)[2], float scale,
                      int left) {
  const int column = threadIdx.x % 4 * 2;
  if (left < KEYS) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      if (i / 4 * 8 + column + i % 2 >= left) score[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float top = peak[row];
#pragma unroll
    for (int i = 0; i < 32; ++i) top = fmaxf(top, score[i / 2 * 4 + 2 * row + i % 2]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    shrink[row] = exp2_special((peak[row] - top) * scale);
    peak[row] = top;
    total[row] *= shrink[row];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float& one = score[i / 2 * 4 + 2 * row + i % 2];
      one = exp2_special(one * scale - top * scale);
      total[row] += one;
    }
  }
}

// Weights as a product's left operand: a thread's parts of both are the same numbers in the same order.
__device__ void pack(uint32_t (&weights)[32], const float (&score)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(score[2 * i], score[2 * i + 1]);
    weights[i] = reinterpret_cast<const uint32_t&>(pair);
  }
}

__device__ void multiply_rows(float (&sum)[64], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) sum[i] *= factor[i / 2 % 2];
}

// Divides by the weights' total, of which each of four threads has a part.
__device__ void finish(float (&sum)[64], const float (&total)[2]) {
  float factor[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const float half = total[row] + __shfl_xor_sync(~0u, total[row], 1);
    factor[row] = 1.0f / (half + __shfl_xor_sync(~0u, half, 2));
  }
  multiply_rows(sum, factor);
}

__device__ void load_rows(bf16 (&tile)[2][128 * ROW], const CUtensorMap& map, int row, Barrier* barrier) {
  load_box(tile[0], &map, 0, row, barrier);
  load_box(tile[1], &map, ROW, row, barrier);
}

__global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
              const __grid_constant__ CUtensorMap v, bf16* __restrict__ out, int tokens, float scale) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int first = blockIdx.x * QUERIES, head = blockIdx.y * tokens, tiles = ceil_div(tokens, KEYS);
  const int group = group_of_thread();
  const auto load = [&](int i) {
    Barrier* full = &shared.full[i % STAGES];
    arrive_and_expect(full, sizeof(shared.k[0]) + sizeof(shared.v[0]) + (i ? 0 : sizeof(shared.q)));
    if (i == 0) load_rows(shared.q, q, head + first, full);
    load_rows(shared.k[i % STAGES], k, head + i * KEYS, full);
    load_rows(shared.v[i % STAGES], v, head + i * KEYS, full);
  };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : shared.full) init(&barrier, 1);
    publish_barriers();
    load(0);
  }
  __syncthreads();

  float sum[64] = {}, score[64], total[2] = {}, peak[2] = {-INFINITY, -INFINITY}, shrink[2];
  uint32_t weights[32];
  for (int i = 0; i < tiles; ++i) {
    if (threadIdx.x == 0 && i + 1 < tiles) load(i + 1);
    wait(&shared.full[i % STAGES], i / STAGES % 2);
    start_scores(score, shared.q, shared.k[i % STAGES], group);
    finish_products(score);
    weigh(score, peak, total, shrink, scale, tokens - i * KEYS);
    multiply_rows(sum, shrink);
    pack(weights, score);
    start_sums(sum, weights, shared.v[i % STAGES]);
    finish_products(sum);
    __syncthreads();  // both are done with this stage, which is filled next
  }
  finish(sum, total);
  store_sums(sum, out + int64_t(head) * WIDTH, first + group * 64, 0, tokens, WIDTH);
}

extern "C" int attend(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* out,
                      int64_t heads, int64_t tokens, cudaStream_t stream) {
  CUtensorMap maps[3];
  const bf16* sides[3] = {q, k, v};
  for (int i = 0; i < 3; ++i) {
    TRY(describe(&maps[i], sides[i], heads * tokens, WIDTH, 128));
  }
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const float scale = 1.44269504f / sqrtf(float(WIDTH));  // weights are powers of 2
  const dim3 grid(ceil_div(tokens, QUERIES), heads);
  attention<<<grid, THREADS, BYTES, stream>>>(maps[0], maps[1], maps[2], out, int(tokens), scale);
  return cudaGetLastError();
}
