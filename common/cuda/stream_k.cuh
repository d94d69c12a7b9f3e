// Equal shares of a product's steps (stream-K), through a ring of stages: the steps of all tiles lie end to end, and
// each block takes as many. Where blocks share a tile, the last to come adds up what all of them left.
#pragma once
#include "ampere.cuh"

struct Shares {
  int groups;         // steps of a tile
  int share, longer;  // steps of a block, and how many blocks, the first ones, have one more
  // The first of all steps that is a block's: each has as many as any other, but for one.
  __device__ int first(int block) const { return block * share + min(block, longer); }
};

// Where a block is in the steps of all tiles. Counted on, as a division in every step would show.
struct Cursor {
  int step, tile, group;
  __device__ Cursor(int step, int groups) : step(step), tile(step / groups), group(step % groups) {}
  __device__ void advance(int groups) {
    ++step;
    if (++group == groups) {
      group = 0;
      ++tile;
    }
  }
};

// A warp's sums: of M times 16 outputs and N times 8 rows, in the order in which mma.sync and wgmma leave them.
template <int M, int N>
__device__ void clear(float (&sum)[M][N][4]) {
#pragma unroll
  for (int i = 0; i < M * N * 4; ++i) sum[i / (N * 4)][i / 4 % N][i % 4] = 0.0f;
}

// out[rows, outputs] of a tile: each warp has the next 16 M outputs.
template <int M, int N>
__device__ void store(const float (&sum)[M][N][4], bf16* out, int rows, int outputs, int first) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int output = first + (warp * M + m) * 16 + lane / 4 + i / 2 * 8;
        const int row = n * 8 + lane % 4 * 2 + i % 2;
        if (output < outputs && row < rows) out[int64_t(row) * outputs + output] = __float2bfloat16(sum[m][n][i]);
      }
    }
  }
}

// A tile whose features several blocks share: each leaves its sums, and the last to come adds all up in their order.
// A block shares at most two tiles, its first and its last. Returns whether this block is the last to come.
// `partial` has [blocks, 2, sums of a tile]; `arrived` has [tiles], zero between launches.
template <int THREADS, int M, int N>
__device__ bool add_up(float (&sum)[M][N][4], const Shares& shares, float4* partial, int32_t* arrived, int tile) {
  constexpr int PARTS = M * N;
  const int first = tile * shares.groups, last = first + shares.groups - 1;
  const auto slot = [&](int block) {
    const bool begun_before = shares.first(block) < first;
    return partial + int64_t(2 * block + begun_before) * PARTS * THREADS + threadIdx.x;
  };
  float4* const own = slot(blockIdx.x);
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const float(&part)[4] = sum[i / N][i % N];
    own[i * THREADS] = {part[0], part[1], part[2], part[3]};
  }
  __threadfence();
  __syncthreads();

  int from = blockIdx.x, to = blockIdx.x;
  while (shares.first(from) > first) --from;
  while (shares.first(to + 1) <= last) ++to;
  __shared__ bool is_last;
  if (threadIdx.x == 0) is_last = atomicAdd(arrived + tile, 1) == to - from;
  __syncthreads();
  if (!is_last) return false;

  __threadfence();
  if (threadIdx.x == 0) arrived[tile] = 0;  // for the next launch
  clear(sum);
  for (int block = from; block <= to; ++block) {
    const float4* const parts = slot(block);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const float4 part = __ldcg(parts + i * THREADS);  // written by another multiprocessor
      float(&total)[4] = sum[i / N][i % N];
      total[0] += part.x;
      total[1] += part.y;
      total[2] += part.z;
      total[3] += part.w;
    }
  }
  return true;
}

// A block's steps: load(stage, cursor) starts copies of one, ready() is called when those of a thread are here,
// multiply(stage) adds it to the sums, and finish(tile, whole) takes these, of a whole tile or of a part.
template <int STAGES, typename Stage, typename Load, typename Ready, typename Multiply, typename Finish>
__device__ void walk(Stage* ring, const Shares& shares, Load load, Ready ready, Multiply multiply, Finish finish) {
  const int begin = shares.first(blockIdx.x), end = shares.first(blockIdx.x + 1);
  Cursor ahead(begin, shares.groups);
  int filled = 0;
  const auto load_next = [&] {  // a group for each stage, empty at the end, so that they can be counted
    if (ahead.step < end) load(ring[filled], ahead);
    commit_copies();
    ahead.advance(shares.groups);
    filled = filled + 1 == STAGES ? 0 : filled + 1;
  };
  for (int i = 0; i < STAGES - 1; ++i) load_next();

  int stage = 0;
  for (Cursor at(begin, shares.groups); at.step < end; at.advance(shares.groups)) {
    wait_for_copies<STAGES - 2>();
    ready();
    __syncthreads();  // this stage is here, and all warps are done with the one before, which is filled next
    load_next();
    multiply(ring[stage]);
    stage = stage + 1 == STAGES ? 0 : stage + 1;

    const bool tile_ends = at.group == shares.groups - 1;
    if (tile_ends || at.step == end - 1) finish(at.tile, tile_ends && begin <= at.tile * shares.groups);
  }
}
