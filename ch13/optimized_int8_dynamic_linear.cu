// Each token is rounded to int8; pairs of blocks multiply by wgmma, and scale the whole sums on their way out.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "cluster.cuh"
#include "wgmma.cuh"

// The product's copies take two numbers for one bf16, as they only move bytes: ROW is 64 such pairs, k counts pairs.

constexpr int PIECE = 8;            // numbers of x that a thread rounds at a time
constexpr int ROUND_THREADS = 256;  // a token
constexpr int TILE_M = 128, TILE_N = 256;  // of the result, a block at a time
constexpr int CONSUMERS = 2;               // warpgroups, 64 rows each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;
constexpr int CLUSTER = 2;  // blocks, one below the other: they share the rows of b
constexpr int BAND = 8;     // rows of pairs of tiles

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  bf16 out[CONSUMERS][2][64 * ROW];
  float2 of_columns[CONSUMERS][TILE_N / 2];
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

struct Piece {
  union {
    uint4 words;
    __nv_bfloat162 pairs[PIECE / 2];
  };
};

// A block rounds a token, of which it finds the largest number first; the second time its row comes from the L1 cache.
__global__ void __launch_bounds__(ROUND_THREADS)
    round_tokens(const bf16* __restrict__ x, int8_t* __restrict__ codes, float* __restrict__ scales, int features) {
  __shared__ float largest_of[ROUND_THREADS / 32];
  const int64_t first = int64_t(blockIdx.x) * features;
  const int pieces = features / PIECE;
  const uint4* row = reinterpret_cast<const uint4*>(x + first);
  float largest = 1e-20f;  // the floor is for zeros
  for (int piece = threadIdx.x; piece < pieces; piece += ROUND_THREADS) {
    const Piece from = {row[piece]};
#pragma unroll
    for (int i = 0; i < PIECE / 2; ++i) {
      const float2 numbers = __bfloat1622float2(from.pairs[i]);
      largest = fmaxf(largest, fmaxf(fabsf(numbers.x), fabsf(numbers.y)));
    }
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, other));
  if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < ROUND_THREADS / 32; ++warp) largest = fmaxf(largest, largest_of[warp]);
  if (threadIdx.x == 0) scales[blockIdx.x] = largest / 127;
  const float steps = 127 / largest;
  for (int piece = threadIdx.x; piece < pieces; piece += ROUND_THREADS) {
    const Piece from = {row[piece]};
    union {
      uint2 words;
      char2 pairs[PIECE / 2];
    } to;
#pragma unroll
    for (int i = 0; i < PIECE / 2; ++i) {
      const float2 numbers = __bfloat1622float2(from.pairs[i]);
      to.pairs[i].x = static_cast<signed char>(__float2int_rn(numbers.x * steps));
      to.pairs[i].y = static_cast<signed char>(__float2int_rn(numbers.y * steps));
    }
    reinterpret_cast<uint2*>(codes + first)[piece] = to.words;
  }
}

// One tile's row of 128 numbers: four products, each 32 numbers deep.
__device__ void multiply_row_int8(int32_t (&sum)[TILE_N / 2], const bf16* a, const bf16* b) {
  const uint64_t rows = descriptor(a), columns = descriptor(b);
  hold(sum);
  fence_products();
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) multiply_int8(sum, rows + 2 * k, columns + 2 * k);
  commit_products();
  hold(sum);
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
__device__ void consume(Shared& shared, int32_t (&sum)[TILE_N / 2], int group, int rows, uint32_t& turn) {
  const auto release = [&](uint32_t used) {  // to the producers of both blocks
    if (threadIdx.x % 32 < CLUSTER) arrive_at(&shared.empty[used % STAGES], threadIdx.x % 32);
  };
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    multiply_row_int8(sum, shared.a[stage] + group * 64 * ROW, shared.b[stage]);
    wait_for_products<1>();
    if (i >= 1) release(turn - 1);
  }
  finish_products(sum);
  release(turn - 1);
}

// Sums are scaled and go through shared memory in boxes of 64 x 64, which TMA writes as whole lines while the next
// products run. Two boxes take turns.
__device__ void store_tile(Shared& shared, const CUtensorMap& out, const int32_t (&sum)[TILE_N / 2],
                           const float (&of_row)[2], int group, int top, int left, int m, int n) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int box = 0; box < TILE_N / ROW; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group][box % 2]);
    if (thread == 0) wait_for_stores<1>();  // the box before last has been read
    sync_group(1 + group);  // and the columns' scales are there
#pragma unroll
    for (int j = 0; j < ROW / 16; ++j) {
      float scaled[8];  // two columns of two rows, and the same eight columns on
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float2 of_column = shared.of_columns[group][(box * ROW + 16 * j + i / 4 * 8) / 2 + lane % 4];
        const float of_both = of_row[i / 2 % 2] * (i % 2 ? of_column.y : of_column.x);
        scaled[i] = float(sum[ROW / 2 * box + 8 * j + i]) * of_both;
      }
      store_matrices(staged + swizzled(row, 2 * j + lane / 16), scaled);
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
            const __grid_constant__ CUtensorMap out, const float* __restrict__ by_row,
            const float* __restrict__ by_column, int m, int n, int k) {
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
      const int top = place.top + rank * TILE_M + group * 64, thread = threadIdx.x % GROUP_THREADS;
      const int row = top + thread / 32 * 16 + thread % 32 / 4, column = place.left + 2 * thread;
      // Scales are on their way while the products run.
      const float of_row[2] = {row < m ? by_row[row] : 0, row + 8 < m ? by_row[row + 8] : 0};
      const float2 of_columns = column < n ? *reinterpret_cast<const float2*>(by_column + column) : float2{};
      int32_t sum[TILE_N / 2] = {};
      consume(shared, sum, group, rows, turn);
      shared.of_columns[group][thread] = of_columns;
      store_tile(shared, out, sum, of_row, group, top, place.left, m, n);
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
  sync_cluster();  // no block may end while the other can still arrive at its barriers
}

static const bf16* pairs(const int8_t* numbers) { return reinterpret_cast<const bf16*>(numbers); }

extern "C" int linear(const __nv_bfloat16* x, const int8_t* codes, const float* by_column, __nv_bfloat16* out,
                      int8_t* rounded, float* by_row, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  if (k % 16 || n % 8) return cudaErrorInvalidValue;  // TMA copies rows that begin at multiples of 16 bytes
  CUtensorMap map_a, map_b, map_out;
  TRY(describe(&map_a, pairs(rounded), m, k / 2, TILE_M));
  TRY(describe(&map_b, pairs(codes), n, k / 2, TILE_N / CLUSTER));
  TRY(describe(&map_out, out, m, n, 64));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  round_tokens<<<m, ROUND_THREADS, 0, stream>>>(x, rounded, by_row, int(k));
  TRY(cudaGetLastError());
  const int64_t tiles = ceil_div(m, CLUSTER * TILE_M) * ceil_div(n, TILE_N), room = multiprocessors / CLUSTER;
  product<<<CLUSTER * (tiles < room ? tiles : room), THREADS, BYTES, stream>>>(map_a, map_b, map_out, by_row,
                                                                              by_column, int(m), int(n), int(k / 2));
  return cudaGetLastError();
}
