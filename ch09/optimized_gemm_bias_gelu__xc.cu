// Bias and GELU reach the sums in registers; one warpgroup applies them while the other, some stages behind, multiplies.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "cluster.cuh"
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 256;  // of the result, a block at a time
constexpr int CONSUMERS = 2;               // warpgroups, 64 rows each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;
constexpr int CLUSTER = 2;  // blocks, one below the other: they share the rows of b
constexpr int BEHIND = 3;   // stages by which the second warpgroup begins later, and stays behind
constexpr int BAND = 8;     // rows of pairs of tiles

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  bf16 out[CONSUMERS][2][64 * ROW];
  float2 bias[CONSUMERS][TILE_N / 2];
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

// The second warpgroup waits here until the first has multiplied BEHIND stages. From then on each is in its epilogue
// at another time, and the tensor cores go on.
__device__ void arrive_as_first() { asm volatile("bar.arrive 3, 256;" ::: "memory"); }
__device__ void wait_for_first() { asm volatile("bar.sync 3, 256;" ::: "memory"); }

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
    if (BEHIND > 0 && group == 0 && turn == min(BEHIND, rows) - 1) arrive_as_first();
  }
  finish_products(sum);
  release(turn - 1);
}

// By its approximation with tanh, for which the special function unit has an instruction.
__device__ float gelu(float x) {
  const float inner = x * (0.7978845608f + 0.0356774081f * x * x);
  float tanh;
  asm("tanh.approx.f32 %0, %1;" : "=f"(tanh) : "f"(inner));
  return 0.5f * x + 0.5f * x * tanh;
}

// Results go through shared memory in boxes of 64 x 64, which TMA writes as whole lines while the next products run. Two
// boxes take turns.
__device__ void store_tile(Shared& shared, const CUtensorMap& out, const float (&sum)[TILE_N / 2], int group, int top,
                           int left, int m, int n) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int box = 0; box < TILE_N / ROW; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group][box % 2]);
    if (thread == 0) wait_for_stores<1>();  // the box before last has been read
    sync_group(1 + group);  // and the bias is there
#pragma unroll
    for (int j = 0; j < ROW / 16; ++j) {
      float active[8];  // two columns of two rows, and the same eight columns on
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float2 bias = shared.bias[group][(box * ROW + 16 * j + i / 4 * 8) / 2 + lane % 4];
        active[i] = gelu(sum[ROW / 2 * box + 8 * j + i] + (i % 2 ? bias.y : bias.x));
      }
      store_matrices(staged + swizzled(row, 2 * j + lane / 16), active);
    }
    publish_tile();
    sync_group(1 + group);
    if (thread == 0) {
      if (top < m && left + box * ROW < n) store_box(&out, left + box * ROW, top, staged);
      commit_stores();
    }
  }
}

__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap out, const bf16* __restrict__ bias, int m, int n, int k) {
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
    if (BEHIND > 0 && group == 1) wait_for_first();
    for (int tile = blockIdx.x / CLUSTER; tile < tiles_m * tiles_n; tile += gridDim.x / CLUSTER) {
      const Place place = place_of(tile, tiles_m, tiles_n);
      const int thread = threadIdx.x % GROUP_THREADS, column = place.left + 2 * thread;
      const auto* two = reinterpret_cast<const __nv_bfloat162*>(bias + column);
      const float2 of_columns = column < n ? __bfloat1622float2(*two) : float2{};  // here before the products are
      float sum[TILE_N / 2] = {};
      consume(shared, sum, group, rows, turn);
      shared.bias[group][thread] = of_columns;
      store_tile(shared, out, sum, group, place.top + rank * TILE_M + group * 64, place.left, m, n);
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
  sync_cluster();  // no block may end while the other can still arrive at its barriers
}

extern "C" int gemm_bias_gelu(const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* bias,
                              __nv_bfloat16* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  if (n % 8 || k % 8) return cudaErrorInvalidValue;  // TMA copies rows that begin at multiples of 16 bytes
  CUtensorMap map_a, map_b, map_out;
  TRY(describe(&map_a, a, m, k, TILE_M));
  TRY(describe(&map_b, b, n, k, TILE_N / CLUSTER));
  TRY(describe(&map_out, out, m, n, 64));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t tiles = ceil_div(m, CLUSTER * TILE_M) * ceil_div(n, TILE_N), room = multiprocessors / CLUSTER;
  product<<<CLUSTER * (tiles < room ? tiles : room), THREADS, BYTES, stream>>>(map_a, map_b, map_out, bias, m, n,
                                                                              k);
  return cudaGetLastError();
}
