// tcgen05 takes packed codes from shared memory and their scales from tensor memory. Compiled for sm_100a, not run.
// targets: sm_100a, sm_103a (tcgen05, kind::mxf4nvf4)
#include "blackwell.cuh"

constexpr int TILE_M = 128, TILE_N = 256;  // of the result, a block
constexpr int COPIER = 4, MULTIPLIER = 5;  // warps; the four before them store
constexpr int THREADS = 6 * 32;
constexpr int STAGES = 4;  // 216 KiB: one block fills a multiprocessor
constexpr int PART = 32;   // columns that a thread takes from tensor memory at a time

// A product takes 64 codes of a row, 32 bytes. A stage has 256 codes of each row: 128 bytes, the swizzle's row.
constexpr int DEPTH = 64, STEPS = 4;
constexpr int BLOCK = 512;  // bytes: the scales of 128 rows by 64 codes

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];  // codes; four are as long as a bf16
  bf16 b[STAGES][TILE_N * ROW];
  uint8_t a_scales[STAGES][STEPS * BLOCK];
  uint8_t b_scales[STAGES][TILE_N / 128][STEPS * BLOCK];
  Barrier full[STAGES], empty[STAGES], finished;
  uint32_t sums;  // where in tensor memory: 128 lanes, which are rows, by TILE_N columns; then scales
};

struct Scales {  // by 128 rows, then by 64 codes: BLOCK bytes each
  const uint8_t *a, *b;
  int steps, last_b;  // along k; of the blocks of rows
};

// Columns: a scale block has four, in each of which a word of four scales belongs to one of 32 rows, for all lanes.
constexpr int A_SCALES = TILE_N, B_SCALES = A_SCALES + 4 * STEPS, COLUMNS = 512;

// Types, bits 7 to 11: a and b are e2m1. Bit 23 is zero, as scales are e4m3, and so are bits 4 and 29, the first scale
// of a word, and 31, k = 64. Then n and m.
constexpr uint32_t INSTRUCTION = 1u << 7 | 1u << 10 | TILE_N / 8 << 17 | TILE_M / 16 << 24;

// A block of scales: no swizzle, eight rows of 16 bytes are 128 bytes on from the eight before.
__device__ void copy_scales(uint32_t to, const uint8_t* block) {
  const uint64_t from = uint64_t(1) << 46 | uint64_t(128 / 16) << 32 | (shared_address(block) & 0x3FFFF) / 16;
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from) : "memory");
}

// `steps` products of a stage, added to the sums unless `first`. Copies of scales and products of one thread are
// executed in the order in which it starts them, so that nothing waits between them.
__device__ void multiply_stage(Shared& shared, uint32_t sums, int stage, int steps, bool first) {
  const uint64_t rows = operand(shared.a[stage]), columns = operand(shared.b[stage]);
  for (int i = 0; i < steps; ++i) {
    const uint32_t of_a = sums + A_SCALES + 4 * i, of_b = sums + B_SCALES + TILE_N / 32 * i;
    copy_scales(of_a, shared.a_scales[stage] + i * BLOCK);
    for (int j = 0; j < TILE_N / 128; ++j) copy_scales(of_b + 4 * j, shared.b_scales[stage][j] + i * BLOCK);
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], add;\n}" ::"r"(
            sums),
        "l"(rows + 2 * i), "l"(columns + 2 * i), "r"(INSTRUCTION), "r"(of_a), "r"(of_b), "r"(uint32_t(!first || i > 0))
        : "memory");
  }
}

__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, const Scales& scales, int top,
                        int left, int rows) {
  for (int i = 0; i < rows; ++i) {
    const int stage = i % STAGES, round = i / STAGES;
    Barrier* const full = &shared.full[stage];
    const uint32_t bytes = min(STEPS, scales.steps - i * STEPS) * BLOCK;  // of scales; codes beyond the end are zeros
    wait(&shared.empty[stage], (round + 1) % 2);  // in the first round there is nothing to wait for
    arrive_and_expect(full, sizeof(shared.a[0]) + sizeof(shared.b[0]) + (1 + TILE_N / 128) * bytes);
    load_box(shared.a[stage], &a, i * ROW, top, full);
    load_box(shared.b[stage], &b, i * ROW, left, full);
    const auto load = [&](uint8_t* to, const uint8_t* from, int block) {
      load_row(to, from + (int64_t(block) * scales.steps + i * STEPS) * BLOCK, bytes, full);
    };
    load(shared.a_scales[stage], scales.a, top / 128);
    for (int j = 0; j < TILE_N / 128; ++j) {
      load(shared.b_scales[stage][j], scales.b, min(left / 128 + j, scales.last_b));
    }
  }
}

__device__ void consume(Shared& shared, uint32_t sums, int rows, int steps) {
  for (int i = 0; i < rows; ++i) {
    const int stage = i % STAGES, round = i / STAGES;
    wait(&shared.full[stage], round % 2);
    after_barrier();
    multiply_stage(shared, sums, stage, min(STEPS, steps - i * STEPS), i == 0);
    arrive_after_products(&shared.empty[stage]);
  }
  arrive_after_products(&shared.finished);
}

// Thread t has row t of the tile, whose sums it rounds and stores eight at a time: 16 bytes.
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

__global__ void __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const Scales scales,
            bf16* __restrict__ out, int64_t m, int64_t n) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int top = blockIdx.y * TILE_M, left = blockIdx.x * TILE_N, rows = ceil_div(scales.steps, STEPS);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], 1);
    }
    init(&shared.finished, 1);
    publish_barriers();
  }
  if (warp == MULTIPLIER) {  // a whole warp takes columns, and must give them back
    take_columns<COLUMNS>(&shared.sums);
  }
  before_barrier();
  __syncthreads();
  after_barrier();

  const uint32_t sums = shared.sums;
  if (warp == COPIER) {
    if (lane == 0) produce(shared, a, b, scales, top, left, rows);
  } else if (warp == MULTIPLIER) {
    if (lane == 0) consume(shared, sums, rows, scales.steps);
  } else {
    wait(&shared.finished, 0);
    after_barrier();
    store_tile(sums, out, top, left, m, n);
  }
  __syncwarp();
  before_barrier();
  __syncthreads();
  after_barrier();
  if (warp == MULTIPLIER) {
    give_columns<COLUMNS>(sums);
  }
}

// Codes are [m, k / 2] and [n, k / 2], two a byte; scales are blocks in the order that `blocked` makes.
extern "C" int gemm(const uint8_t* a, const uint8_t* a_scales, const uint8_t* b, const uint8_t* b_scales,
                    __nv_bfloat16* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  if (n % 8 || k % DEPTH) return cudaErrorInvalidValue;
  CUtensorMap map_a, map_b;
  TRY(describe(&map_a, reinterpret_cast<const bf16*>(a), m, k / 4, TILE_M));
  TRY(describe(&map_b, reinterpret_cast<const bf16*>(b), n, k / 4, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const Scales scales{a_scales, b_scales, int(k / DEPTH), int(ceil_div(n, 128)) - 1};
  const dim3 grid(ceil_div(n, TILE_N), ceil_div(m, TILE_M));
  product<<<grid, THREADS, BYTES, stream>>>(map_a, map_b, scales, out, m, n);
  return cudaGetLastError();
}
