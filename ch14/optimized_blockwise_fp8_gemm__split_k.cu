// For few tokens: all blocks get equal shares of the tiles' work, and each reads its part of the weight once.
// targets: sm_90a (wgmma exists on Hopper alone)
#include <cuda_fp8.h>

#include "grid.cuh"
#include "stream_k.cuh"
#include "wgmma.cuh"

// The product's copies and descriptors take two numbers for one bf16: ROW is 64 such pairs.

constexpr int BLOCK = 128;                // numbers of a row that share a scale; of a weight, by as many outputs
constexpr int PIECE = 8;                  // numbers of x that a thread casts
constexpr int TILE_M = 64, TILE_N = 256;  // of the result. Were they narrower, more blocks would load the same tokens
constexpr int WARPGROUPS = TILE_N / BLOCK;  // each has the outputs that share a scale
constexpr int THREADS = WARPGROUPS * GROUP_THREADS;
constexpr int STAGES = 5;  // 160 KiB of weights on their way to a multiprocessor

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][WARPGROUPS][BLOCK * ROW];
  Barrier full[STAGES];
};

// Sixteen threads cast a block of 128 numbers of a row, with the least power of two with which it fits.
__global__ void cast(const bf16* __restrict__ x, uint2* __restrict__ codes, float* __restrict__ scales, int64_t pieces,
                     int m, int k) {
  start_next();  // the product may load its first weights meanwhile
  const int64_t piece = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= pieces) return;  // whole blocks of numbers, so all or none of their threads
  union {
    uint4 words;
    __nv_bfloat162 pairs[PIECE / 2];
  } from;
  from.words = reinterpret_cast<const uint4*>(x)[piece];
  float2 numbers[PIECE / 2];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < PIECE / 2; ++i) {
    numbers[i] = __bfloat1622float2(from.pairs[i]);
    largest = fmaxf(largest, fmaxf(fabsf(numbers[i].x), fabsf(numbers[i].y)));
  }
#pragma unroll
  for (int other = 1; other < BLOCK / PIECE; other *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(__activemask(), largest, other));
  }
  const float least = fmaxf(largest / 448, 0x1p-100f);  // the floor is for zeros
  const float scale = __int_as_float((__float_as_int(least) + 0x7FFFFF) & 0x7F800000);
  union {
    uint2 words;
    __nv_fp8x2_storage_t pairs[PIECE / 2];
  } to;
#pragma unroll
  for (int i = 0; i < PIECE / 2; ++i) {
    const float2 scaled = {numbers[i].x / scale, numbers[i].y / scale};
    to.pairs[i] = __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
  }
  codes[piece] = to.words;
  if (threadIdx.x % (BLOCK / PIECE) == 0) {
    const int64_t row = piece * PIECE / k, block = piece * PIECE % k / BLOCK;
    scales[block * m + row] = scale;
  }
}

// One tile's row of 128 numbers: four products, each 32 numbers deep, the first of which begins the sums anew.
__device__ void multiply_row_fp8(float (&part)[BLOCK / 2], const bf16* a, const bf16* b) {
  const uint64_t rows = descriptor(a), columns = descriptor(b);
  hold(part);
  fence_products();
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) multiply_fp8(part, rows + 2 * k, columns + 2 * k, k > 0);
  commit_products();
  hold(part);
}

struct Problem {
  const float *a_scales, *b_scales;  // [blocks, m], [n / 128, blocks]
  bf16* out;
  float4* partial;   // [blocks of threads, 2, sums of a tile]
  int32_t* arrived;  // [tiles], zero between launches
  int m, n, tiles_m;
  Shares steps;  // of 128 numbers: those of all tiles lie end to end
  __device__ int top(int tile) const { return tile % tiles_m * TILE_M; }
  __device__ int left(int tile) const { return tile / tiles_m * TILE_N; }
};

// Of a step, by the thread's two rows.
__device__ void load_scales(float (&scale)[2], const Problem& problem, const Cursor& at, int warpgroup) {
  const int block = min(problem.left(at.tile) + warpgroup * BLOCK, problem.n - BLOCK) / BLOCK;
  const float of_block = __ldg(problem.b_scales + block * problem.steps.groups + at.group);
  const int row = problem.top(at.tile) + threadIdx.x % GROUP_THREADS / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const bool inside = row + j * 8 < problem.m;
    scale[j] = inside ? of_block * __ldg(problem.a_scales + int64_t(at.group) * problem.m + row + j * 8) : 0;
  }
}

// A whole tile is stored; of one that blocks share, the last to come adds up what all have left.
__device__ void finish_tile(float (&sum)[BLOCK / 2], const Problem& problem, int tile, int warpgroup, bool whole) {
  auto& parts = reinterpret_cast<float(&)[1][BLOCK / 8][4]>(sum);
  if (whole || add_up<THREADS>(parts, problem.steps, problem.partial, problem.arrived, tile)) {
    store_sums(sum, problem.out, problem.top(tile), problem.left(tile) + warpgroup * BLOCK, problem.m, problem.n);
  }
  clear(parts);
}

__global__ void __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const Problem problem) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int groups = problem.steps.groups;
  const int begin = problem.steps.first(blockIdx.x), end = problem.steps.first(blockIdx.x + 1);
  const int warpgroup = group_of_thread();
  const auto load_weights = [&](const Cursor& at, int stage) {
    arrive_and_expect(&shared.full[stage], sizeof(shared.a[0]) + sizeof(shared.b[0]));
    load_box(shared.b[stage], &b, at.group * ROW, problem.left(at.tile), &shared.full[stage]);
  };
  const auto load_tokens = [&](const Cursor& at, int stage) {
    load_box(shared.a[stage], &a, at.group * ROW, problem.top(at.tile), &shared.full[stage]);
  };
  Cursor ahead(begin, groups);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(&shared.full[stage], 1);
    publish_barriers();
    Cursor of_weights = ahead;
    for (int stage = 0; stage < STAGES && of_weights.step < end; ++stage, of_weights.advance(groups)) {
      load_weights(of_weights, stage);
    }
  }
  wait_for_last();  // weights need not wait for the cast
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES && ahead.step < end; ++stage, ahead.advance(groups)) load_tokens(ahead, stage);
  }
  __syncthreads();

  Cursor at(begin, groups), next = at;
  float sum[BLOCK / 2] = {}, of_next[2];
  load_scales(of_next, problem, next, warpgroup);
  for (int i = 0; at.step < end; ++i, at.advance(groups)) {
    const float scale[2] = {of_next[0], of_next[1]};
    if (next.step < end - 1) next.advance(groups);
    load_scales(of_next, problem, next, warpgroup);  // a step ahead: the products must not wait for them
    float part[BLOCK / 2];
    wait(&shared.full[i % STAGES], i / STAGES % 2);
    multiply_row_fp8(part, shared.a[i % STAGES], shared.b[i % STAGES][warpgroup]);
    finish_products(part);
    __syncthreads();  // all warps are done with the stage
    if (threadIdx.x == 0 && ahead.step < end) {
      load_weights(ahead, i % STAGES);
      load_tokens(ahead, i % STAGES);
      ahead.advance(groups);
    }
#pragma unroll
    for (int j = 0; j < BLOCK / 2; ++j) sum[j] += part[j] * scale[j / 2 % 2];
    const bool tile_ends = at.group == groups - 1;
    if (tile_ends || at.step == end - 1) {
      finish_tile(sum, problem, at.tile, warpgroup, tile_ends && at.step - begin >= groups - 1);
    }
  }
}

// `partial` has 2 x 64 x 256 numbers for each of `blocks` blocks, `arrived` one for each 64 x 256 numbers of `out`.
extern "C" int linear(const __nv_bfloat16* x, const __nv_fp8_e4m3* codes, const float* by_block, __nv_bfloat16* out,
                      __nv_fp8_e4m3* x_codes, float* x_scales, float* partial, int32_t* arrived, int64_t m, int64_t n,
                      int64_t k, int64_t blocks, cudaStream_t stream) {
  const int64_t tiles_m = ceil_div(m, TILE_M), steps = tiles_m * ceil_div(n, TILE_N) * (k / BLOCK);
  if (k % BLOCK || n % BLOCK || blocks < 1 || steps > INT32_MAX) return cudaErrorInvalidValue;
  CUtensorMap map_a, map_b;
  TRY(describe(&map_a, reinterpret_cast<const bf16*>(x_codes), m, k / 2, TILE_M));
  TRY(describe(&map_b, reinterpret_cast<const bf16*>(codes), n, k / 2, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const int64_t pieces = m * k / PIECE;
  cast<<<ceil_div(pieces, 256), 256, 0, stream>>>(x, reinterpret_cast<uint2*>(x_codes), x_scales, pieces, int(m),
                                                  int(k));
  TRY(cudaGetLastError());
  const int grid = min(blocks, steps);
  const Problem problem{x_scales, by_block, out, reinterpret_cast<float4*>(partial), arrived, int(m), int(n),
                        int(tiles_m), {int(k / BLOCK), int(steps / grid), int(steps % grid)}};
  return launch_early(true, product, dim3(grid), THREADS, BYTES, stream, map_a, map_b, problem);
}
