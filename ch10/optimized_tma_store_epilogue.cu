// The same product, but sums go through shared memory, from where TMA stores boxes of whole lines.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 256;  // of the result, a block at a time
constexpr int CONSUMERS = 2;               // warpgroups, 64 rows each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 3;
constexpr int BOXES = 4;  // of 64 x 64 results, staged by each warpgroup: all of its tile

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  bf16 out[CONSUMERS][BOXES][64 * ROW];
  Barrier full[STAGES], empty[STAGES];
};

struct Place {
  int top, left;
};

// Along the rows of the result: what all blocks store at one time is a band of whole rows.
__device__ Place place_of(int tile, int tiles_n) {
  return {tile / tiles_n * TILE_M, tile % tiles_n * TILE_N};
}

// With `keep`, all tiles of the block have the same part of b, of one row, which comes once and stays.
__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, Place place, int rows, bool keep,
                        uint32_t& turn) {
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    const bool has_b = !keep || turn == 0;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.a[0]) + (has_b ? sizeof(shared.b[0]) : 0));
    load_box(shared.a[stage], &a, i * ROW, place.top, &shared.full[stage]);
    if (has_b) load_box(shared.b[stage], &b, i * ROW, place.left, &shared.full[stage]);
  }
}

// One tile: `turn` counts the stages that this thread has used, over all tiles.
__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int group, int rows, bool keep,
                        uint32_t& turn) {
  const auto release = [&](uint32_t used) {
    if (threadIdx.x % 32 == 0) arrive(&shared.empty[used % STAGES]);
  };
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    multiply_row(sum, shared.a[stage] + group * 64 * ROW, shared.b[keep ? 0 : stage]);
    wait_for_products<1>();
    if (i >= 1) release(turn - 1);
  }
  finish_products(sum);
  release(turn - 1);
}

__device__ void store_box_first_out(const CUtensorMap* map, int column, int row, const void* tile, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::"l"(
                   map),
               "r"(column), "r"(row), "r"(shared_address(tile)), "l"(policy)
               : "memory");
}

// TMA stores one box after the other, and the warpgroup goes on to its next tile. A box is written again only after TMA
// has read it: one tile later.
__device__ void store_tile(Shared& shared, const CUtensorMap& out, const float (&sum)[TILE_N / 2], int group, int top,
                           int left, int m, int n) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane % 16;
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#pragma unroll
  for (int box = 0; box < TILE_N / ROW; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group][box % BOXES]);
    if (thread == 0) wait_for_stores<BOXES - 1>();  // the last store from this box has been read
    sync_group(1 + group);
#pragma unroll
    for (int j = 0; j < ROW / 16; ++j) {
      store_matrices(staged + swizzled(row, 2 * j + lane / 16), sum + ROW / 2 * box + 8 * j);
    }
    publish_tile();
    sync_group(1 + group);
    if (thread == 0) {
      if (top < m && left + box * ROW < n) store_box_first_out(&out, left + box * ROW, top, staged, policy);
      commit_stores();
    }
  }
}

__global__ void __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap out, int m, int n, int k, bool keep) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tiles_n = ceil_div(n, TILE_N), tiles = ceil_div(m, TILE_M) * tiles_n, rows = ceil_div(k, ROW);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], CONSUMERS * GROUP_THREADS / 32);  // a warp arrives once
    }
    publish_barriers();
  }
  __syncthreads();

  const int group = group_of_thread();
  uint32_t turn = 0;
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) {
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        produce(shared, a, b, place_of(tile, tiles_n), rows, keep, turn);
      }
    }
  } else {
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const Place place = place_of(tile, tiles_n);
      float sum[TILE_N / 2] = {};
      consume(shared, sum, group, rows, keep, turn);
      store_tile(shared, out, sum, group, place.top + group * 64, place.left, m, n);
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
}

extern "C" int multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n,
                        int64_t k, cudaStream_t stream) {
  CUtensorMap map_a, map_b, map_out;
  TRY(describe(&map_a, a, m, k, TILE_M));
  TRY(describe(&map_b, b, n, k, TILE_N));
  TRY(describe(&map_out, out, m, n, 64));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t tiles_n = ceil_div(n, TILE_N), tiles = ceil_div(m, TILE_M) * tiles_n;
  int64_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
  const bool keep = k <= ROW && blocks >= tiles_n;
  if (keep) blocks -= blocks % tiles_n;  // whole bands at a time: a block's tiles lie below each other
  product<<<blocks, THREADS, BYTES, stream>>>(map_a, map_b, map_out, m, n, k, keep);
  return cudaGetLastError();
}
