// A tile's sums are added to those in memory by the L2 cache, out of shared memory, while the next products run.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "cluster.cuh"
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 256;  // of the result, a block at a time
constexpr int CONSUMERS = 2;               // warpgroups, 64 rows each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;         // of 64 tokens
constexpr int SQUARE = 64 * ROW;  // elements of 64 tokens, the unit of copies: tokens are rows of both a and b
constexpr int BOX = 32;           // columns of 64 sums that leave at a time, in rows of 128 bytes
constexpr int CLUSTER = 2;  // blocks, one below the other: they share the rows of b
constexpr int BAND = 8;     // rows of pairs of tiles

struct Shared {
  bf16 a[STAGES][TILE_M / 64][SQUARE];
  bf16 b[STAGES][TILE_N / 64][SQUARE];
  float out[CONSUMERS][2][64 * BOX];
  Barrier full[STAGES], empty[STAGES];
};

struct Place {
  int top, left;
};

struct Piece {
  int tile, first, rows;  // of 64 tokens; none where rows is 0
};

// Piece `i` of a pair's work. Pairs begin their first tile at different rows and end with the rest of it: so they are
// never all at a tile's end at once, where their sums would queue for the L2 cache. Tiles that are left over are cut.
__device__ Piece piece_of(int i, int pair, int pairs, int tiles, int rows) {
  const int whole = tiles / pairs, late = rows * pair / pairs;
  if (i < whole) return {i * pairs + pair, i ? 0 : late, i ? rows : rows - late};
  if (i == whole) return {pair, 0, late};
  const int rest = tiles % pairs * rows, begin = rest * pair / pairs, end = rest * (pair + 1) / pairs;
  const int left = begin / rows + i - whole - 1, from = max(begin, left * rows), to = min(end, (left + 1) * rows);
  return {whole * pairs + left, from - left * rows, max(to - from, 0)};
}

// Work goes down a band of BAND pairs, column by column, and then down the next band. What is in work at one
// time is nearly square: it reads few rows of a and b, which the L2 cache still holds for the next pair.
__device__ Place place_of(int tile, int tiles_m, int tiles_n) {
  const int first = tile / (BAND * tiles_n) * BAND, rest = tile % (BAND * tiles_n);
  const int height = min(BAND, tiles_m - first);
  return {(first + rest % height) * CLUSTER * TILE_M, rest / height * TILE_N};
}

// Each block of a pair fetches columns of a for itself, and half of the columns of b for both. It may write into the
// other's stage, so it waits until the warps of both are done with theirs; it awaits its own bytes and the other's.
__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, Place place, int rank, int first,
                        int rows, uint32_t& turn) {
  constexpr int SHARE = TILE_N / 64 / CLUSTER;
  for (int i = first; i < first + rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    Barrier* full = &shared.full[stage];
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);
    arrive_and_expect(full, sizeof(shared.a[0]) + sizeof(shared.b[0]));
    for (int j = 0; j < TILE_M / 64; ++j) {
      load_box(shared.a[stage][j], &a, place.top + rank * TILE_M + j * 64, i * 64, full);
    }
    for (int j = rank * SHARE; j < (rank + 1) * SHARE; ++j) {
      load_box_to_many(shared.b[stage][j], &b, place.left + j * 64, i * 64, full, (1 << CLUSTER) - 1);
    }
  }
}

// The products of 64 tokens, 16 at a time, which are 2048 bytes. Of these a descriptor says where the last eight are,
// 1024 bytes on, and for b where the next 64 columns are: a square further.
__device__ void multiply_square(float (&sum)[TILE_N / 2], const bf16* a, const bf16* b) {
  const uint64_t of_a = descriptor(a), of_b = descriptor(b) + (uint64_t(SQUARE * sizeof(bf16) / 16 - 1) << 16);
  hold(sum);
  fence_products();
#pragma unroll
  for (int step = 0; step < 64 / 16; ++step) multiply_columns(sum, of_a + 128 * step, of_b + 128 * step);
  commit_products();
  hold(sum);
}

// One tile: `turn` counts the stages that this thread has used, over all tiles.
__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int group, int rows, uint32_t& turn) {
  const auto release = [&](uint32_t used) {  // to the producers of both blocks
    if (threadIdx.x % 32 < CLUSTER) arrive_at(&shared.empty[used % STAGES], threadIdx.x % 32);
  };
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    multiply_square(sum, shared.a[stage][group], shared.b[stage][0]);
    wait_for_products<1>();
    if (i >= 1) release(turn - 1);
  }
  finish_products(sum);
  release(turn - 1);
}

// A box of sums in shared memory is added to one in memory, each number atomically; belongs to the thread's group of
// stores.
__device__ void add_box(const CUtensorMap* map, int column, int row, const void* tile) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
               "r"(column), "r"(row), "r"(shared_address(tile))
               : "memory");
}

// Sums go through shared memory in boxes of 64 x 32, which TMA hands to the L2 cache to be added while the next products
// run. Two boxes take turns.
__device__ void add_tile(Shared& shared, const CUtensorMap& out, const float (&sum)[TILE_N / 2], int group, int top,
                         int left, int m, int n) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int box = 0; box < TILE_N / BOX; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group][box % 2]);
    if (thread == 0) wait_for_stores<1>();  // the box before last has been read
    sync_group(1 + group);
#pragma unroll
    for (int j = 0; j < BOX / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* two = sum + BOX / 2 * box + 4 * j + 2 * i;
        char* place = staged + swizzled(row + 8 * i, 2 * j + lane % 4 / 2) + lane % 2 * 8;
        *reinterpret_cast<float2*>(place) = {two[0], two[1]};
      }
    }
    publish_tile();
    sync_group(1 + group);
    if (thread == 0) {
      if (top < m && left + box * BOX < n) add_box(&out, left + box * BOX, top, staged);
      commit_stores();
    }
  }
}

__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap out, int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tiles_m = ceil_div(m, CLUSTER * TILE_M), tiles_n = ceil_div(n, TILE_N), rows = ceil_div(k, 64);
  const int rank = cluster_rank(), pair = blockIdx.x / CLUSTER, pairs = gridDim.x / CLUSTER;
  const int pieces = tiles_m * tiles_n / pairs + 3;
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
      for (int i = 0; i < pieces; ++i) {
        const Piece piece = piece_of(i, pair, pairs, tiles_m * tiles_n, rows);
        produce(shared, a, b, place_of(piece.tile, tiles_m, tiles_n), rank, piece.first, piece.rows, turn);
      }
    }
  } else {
    for (int i = 0; i < pieces; ++i) {
      const Piece piece = piece_of(i, pair, pairs, tiles_m * tiles_n, rows);
      if (!piece.rows) continue;
      const Place place = place_of(piece.tile, tiles_m, tiles_n);
      float sum[TILE_N / 2] = {};
      consume(shared, sum, group, piece.rows, turn);
      add_tile(shared, out, sum, group, place.top + rank * TILE_M + group * 64, place.left, m, n);
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
  sync_cluster();  // no block may end while the other can still arrive at its barriers
}

// slope[k, m]^T x[k, n] is added to total[m, n].
extern "C" int add_product(const __nv_bfloat16* slope, const __nv_bfloat16* x, float* total, int64_t m, int64_t n,
                           int64_t k, cudaStream_t stream) {
  if (m % 8 || n % 8) return cudaErrorInvalidValue;  // TMA copies rows that begin at multiples of 16 bytes
  CUtensorMap map_a, map_b, map_out;
  TRY(describe(&map_a, slope, k, m, 64));
  TRY(describe(&map_b, x, k, n, 64));
  TRY(describe(&map_out, total, {n, m}, {uint32_t(BOX), 64u}, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_NONE));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t tiles = ceil_div(m, CLUSTER * TILE_M) * ceil_div(n, TILE_N), room = multiprocessors / CLUSTER;
  product<<<CLUSTER * (tiles < room ? tiles : room), THREADS, BYTES, stream>>>(map_a, map_b, map_out, int(m), int(n),
                                                                              int(k));
  return cudaGetLastError();
}
