// Two blocks make 256 x 256 results as a pair; each loads half the rows of a and of b. Compiled for sm_100a, not run.
// targets: sm_100a, sm_103a (tcgen05)
#include "blackwell.cuh"
#include "cluster.cuh"

constexpr int PAIR = 2;                    // blocks, which are a cluster
constexpr int TILE_M = 256, TILE_N = 256;  // of the result, a pair at a time
constexpr int ACCUMULATORS = 2;            // tiles' sums in tensor memory: all of its 512 columns
constexpr int COPIER = 4, MULTIPLIER = 5;  // warps; the four before them store
constexpr int THREADS = 6 * 32;
constexpr int STAGES = 6;  // 192 KiB: one block fills a multiprocessor
constexpr int PART = 32;   // columns that a thread takes from tensor memory at a time
constexpr int BAND = 8;    // rows of tiles

constexpr int HALF_M = TILE_M / PAIR, HALF_N = TILE_N / PAIR;  // rows of a and of b, a block

struct Shared {
  bf16 a[STAGES][HALF_M * ROW];
  bf16 b[STAGES][HALF_N * ROW];
  Barrier empty[STAGES], finished[ACCUMULATORS];  // each block has its own
  Barrier full[STAGES], drained[ACCUMULATORS];    // those of block 0 are for both
  uint32_t sums;  // where in tensor memory: this block's HALF_M rows by TILE_N columns for each accumulator
};

struct Place {
  int top, left;
};

// Work goes down a band of BAND rows of tiles, column by column, and then down the next band. What is in work at one
// time is nearly square: it reads few rows of a and b, which the L2 cache still holds for the next tile.
__device__ Place place_of(int tile, int tiles_m, int tiles_n) {
  const int first = tile / (BAND * tiles_n) * BAND, rest = tile % (BAND * tiles_n);
  const int height = min(BAND, tiles_m - first);
  return {(first + rest % height) * TILE_M, rest / height * TILE_N};
}

// Types, bits 4 to 12: sums are fp32, a and b bf16. Both run along k, which leaves bits 15 and 16 zero. Then n and m.
constexpr uint32_t INSTRUCTION = 1u << 4 | 1u << 7 | 1u << 10 | TILE_N / 8 << 17 | TILE_M / 16 << 24;

// One tile's row of 64 elements: four products, added to the sums unless `first`.
__device__ void multiply_row(uint32_t sums, const bf16* a, const bf16* b, bool first) {
  const uint64_t rows = operand(a), columns = operand(b);
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) {
    multiply<PAIR>(sums, rows + 2 * k, columns + 2 * k, INSTRUCTION, !first || k > 0);
  }
}

// Each block fetches its halves; block 0 awaits the bytes of both, some of which may land before it expects them.
__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, Place place, int rank, int rows,
                        uint32_t& turn) {
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);  // in the first round there is nothing to wait for
    if (rank == 0) arrive_and_expect(&shared.full[stage], PAIR * (sizeof(shared.a[0]) + sizeof(shared.b[0])));
    load_box_in_pair(shared.a[stage], &a, i * ROW, place.top + rank * HALF_M, &shared.full[stage]);
    load_box_in_pair(shared.b[stage], &b, i * ROW, place.left + rank * HALF_N, &shared.full[stage]);
  }
}

// One tile, by a thread of block 0: `turn` counts the stages that it has used, over all tiles.
__device__ void consume(Shared& shared, uint32_t sums, int rows, uint32_t& turn) {
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    after_barrier();
    multiply_row(sums, shared.a[stage], shared.b[stage], i == 0);
    arrive_in_pair_after_products(&shared.empty[stage]);
  }
}

// Thread t has row t of the block's half, whose sums it rounds and stores eight at a time: 16 bytes.
__device__ void store_tile(uint32_t sums, bf16* out, int64_t top, int64_t left, int64_t m, int64_t n) {
  const int64_t row = top + threadIdx.x;
  for (int column = 0; column < TILE_N; column += PART) {
    uint32_t sum[PART];
    load_sums(sum, sums + (threadIdx.x / 32 * 32 << 16) + column);
#pragma unroll
    for (int i = 0; i < PART; i += 8) {
      uint32_t pair[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(pair[j])
            : "f"(__uint_as_float(sum[i + 2 * j + 1])), "f"(__uint_as_float(sum[i + 2 * j])));
      }
      if (row < m && left + column + i < n) {
        *reinterpret_cast<uint4*>(out + row * n + left + column + i) = {pair[0], pair[1], pair[2], pair[3]};
      }
    }
  }
}

__global__ void __cluster_dims__(PAIR) __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* __restrict__ out,
            int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tiles_m = ceil_div(m, TILE_M), tiles_n = ceil_div(n, TILE_N), rows = ceil_div(k, ROW);
  const int rank = cluster_rank();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], 1);
    }
    for (int i = 0; i < ACCUMULATORS; ++i) {
      init(&shared.finished[i], 1);
      init(&shared.drained[i], PAIR * COPIER);  // each warp that stores arrives once
    }
    publish_barriers();
  }
  sync_cluster();            // both blocks have begun, as they must have to take columns together
  if (warp == MULTIPLIER) {  // a whole warp of each takes columns, and must give them back
    take_columns<ACCUMULATORS * TILE_N, PAIR>(&shared.sums);
  }
  before_barrier();
  __syncthreads();
  after_barrier();

  const uint32_t sums = shared.sums;
  uint32_t turn = 0, count = 0;  // of stages, of tiles
  for (int tile = blockIdx.x / PAIR; tile < tiles_m * tiles_n; tile += gridDim.x / PAIR, ++count) {
    const Place place = place_of(tile, tiles_m, tiles_n);
    const uint32_t which = count % ACCUMULATORS, round = count / ACCUMULATORS, own = sums + which * TILE_N;
    if (warp == COPIER) {
      if (lane == 0) produce(shared, a, b, place, rank, rows, turn);
    } else if (warp == MULTIPLIER) {
      if (rank == 0 && lane == 0) {
        wait(&shared.drained[which], (round + 1) % 2);  // the first round finds it empty
        after_barrier();
        consume(shared, own, rows, turn);
        arrive_in_pair_after_products(&shared.finished[which]);
      }
    } else {
      wait(&shared.finished[which], round % 2);
      after_barrier();
      store_tile(own, out, place.top + rank * HALF_M, place.left, m, n);
      before_barrier();
      __syncwarp();
      if (lane == 0) arrive_at(&shared.drained[which], 0);
    }
  }
  if (warp == COPIER && lane == 0) {  // no block may end while the other's products can still arrive at its barriers
    for (int i = 0; i < STAGES; ++i, ++turn) wait(&shared.empty[turn % STAGES], (turn / STAGES + 1) % 2);
  }
  __syncwarp();
  before_barrier();
  sync_cluster();
  after_barrier();
  if (warp == MULTIPLIER) {
    give_columns<ACCUMULATORS * TILE_N, PAIR>(sums);
  }
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  CUtensorMap map_a, map_b;
  TRY(describe(&map_a, a, m, k, HALF_M));
  TRY(describe(&map_b, b, n, k, HALF_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t tiles = ceil_div(m, TILE_M) * ceil_div(n, TILE_N), room = multiprocessors / PAIR;
  product<<<PAIR * (tiles < room ? tiles : room), THREADS, BYTES, stream>>>(map_a, map_b, out, m, n, k);
  return cudaGetLastError();
}
