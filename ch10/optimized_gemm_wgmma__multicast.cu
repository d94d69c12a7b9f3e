// Blocks work in pairs on one column of tiles: each fetches half of b's rows, and TMA delivers them to both.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "cluster.cuh"
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 256;  // of the result, a block at a time
constexpr int CONSUMERS = 2;               // warpgroups, 64 rows each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;
constexpr int CLUSTER = 2;  // blocks, one below the other: they share the rows of b
constexpr int BAND = 8;     // rows of pairs of tiles

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  Barrier full[STAGES], empty[STAGES];
};

struct Place {
  int top, left;
};

// Work goes down a band of BAND pairs, column by column, and then down the next band. What is in work at one
// time is nearly square: it reads few rows of a and b, which the L2 cache still holds for the next pair.
__device__ Place place_of(int tile, int tiles_m, int tiles_n) {
  const int first = tile / (BAND * tiles_n) * BAND, rest = tile % (BAND * tiles_n);
  const int height = min(BAND, tiles_m - first);
  return {(first + rest % height) * CLUSTER * TILE_M, rest / height * TILE_N};
}

// Each block of a pair fetches rows of a for itself, and half of the rows of b for both. It may write into the other's
// stage, so it waits until the warps of both are done with theirs; it awaits its own bytes and the other's.
__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, Place place, int rank, int rows,
                        uint32_t& turn) {
  constexpr int SHARE = TILE_N / CLUSTER;
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.a[0]) + sizeof(shared.b[0]));
    load_box(shared.a[stage], &a, i * ROW, place.top + rank * TILE_M, &shared.full[stage]);
    load_box_to_many(shared.b[stage] + rank * SHARE * ROW, &b, i * ROW, place.left + rank * SHARE,
                     &shared.full[stage], (1 << CLUSTER) - 1);
  }
}

// One tile: `turn` counts the stages that this thread has used, over all tiles.
__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int group, int rows, uint32_t& turn) {
  const auto release = [&](uint32_t used) {  // to the producers of both blocks
    if (threadIdx.x % 32 < CLUSTER) arrive_at(&shared.empty[used % STAGES], threadIdx.x % 32);
  };
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    multiply_row(sum, shared.a[stage] + group * 64 * ROW, shared.b[stage]);
    wait_for_products<1>();
    if (i >= 1) release(turn - 1);
  }
  finish_products(sum);
  release(turn - 1);
}

__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* __restrict__ out,
            int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tiles_m = ceil_div(m, CLUSTER * TILE_M), tiles_n = ceil_div(n, TILE_N), rows = ceil_div(k, ROW);
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], CLUSTER * CONSUMERS * GROUP_THREADS / 32);  // a warp of either block arrives once
    }
    publish_barriers();
  }
  sync_cluster();

  const int group = group_of_thread();
  uint32_t turn = 0;
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) {
      for (int tile = blockIdx.x / CLUSTER; tile < tiles_m * tiles_n; tile += gridDim.x / CLUSTER) {
        produce(shared, a, b, place_of(tile, tiles_m, tiles_n), rank, rows, turn);
      }
    }
  } else {
    for (int tile = blockIdx.x / CLUSTER; tile < tiles_m * tiles_n; tile += gridDim.x / CLUSTER) {
      const Place place = place_of(tile, tiles_m, tiles_n);
      float sum[TILE_N / 2] = {};
      consume(shared, sum, group, rows, turn);
      store_sums(sum, out, place.top + rank * TILE_M + group * 64, place.left, m, n);
    }
  }
  sync_cluster();  // no block may end while the other can still arrive at its barriers
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  CUtensorMap map_a, map_b;
  TRY(describe(&map_a, a, m, k, TILE_M));
  TRY(describe(&map_b, b, n, k, TILE_N / CLUSTER));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t tiles = ceil_div(m, CLUSTER * TILE_M) * ceil_div(n, TILE_N), room = multiprocessors / CLUSTER;
  product<<<CLUSTER * (tiles < room ? tiles : room), THREADS, BYTES, stream>>>(map_a, map_b, out, m, n, k);
  return cudaGetLastError();
}
