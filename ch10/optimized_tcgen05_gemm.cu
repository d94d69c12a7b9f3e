// One thread starts products of 128 x 256 x 16 whose sums stay in tensor memory. Compiled for sm_100a, not run.
// targets: sm_100a, sm_103a (tcgen05)
#include "blackwell.cuh"

constexpr int TILE_M = 128, TILE_N = 256;  // of the result, a block
constexpr int COPIER = 4, MULTIPLIER = 5;  // warps; the four before them store
constexpr int THREADS = 6 * 32;
constexpr int STAGES = 4;  // 192 KiB: one block fills a multiprocessor
constexpr int PART = 32;   // columns that a thread takes from tensor memory at a time

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  Barrier full[STAGES], empty[STAGES], finished;
  uint32_t sums;  // where in tensor memory: 128 lanes, which are rows, by TILE_N columns
};

// Types, bits 4 to 12: sums are fp32, a and b bf16. Both run along k, which leaves bits 15 and 16 zero. Then n and m.
constexpr uint32_t INSTRUCTION = 1u << 4 | 1u << 7 | 1u << 10 | TILE_N / 8 << 17 | TILE_M / 16 << 24;

// One tile's row of 64 elements: four products, added to the sums unless `first`.
__device__ void multiply_row(uint32_t sums, const bf16* a, const bf16* b, bool first) {
  const uint64_t rows = operand(a), columns = operand(b);
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) {
    multiply(sums, rows + 2 * k, columns + 2 * k, INSTRUCTION, !first || k > 0);
  }
}

__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, int top, int left, int rows) {
  for (int i = 0; i < rows; ++i) {
    const int stage = i % STAGES, round = i / STAGES;
    wait(&shared.empty[stage], (round + 1) % 2);  // in the first round there is nothing to wait for
    arrive_and_expect(&shared.full[stage], sizeof(shared.a[0]) + sizeof(shared.b[0]));
    load_box(shared.a[stage], &a, i * ROW, top, &shared.full[stage]);
    load_box(shared.b[stage], &b, i * ROW, left, &shared.full[stage]);
  }
}

__device__ void consume(Shared& shared, uint32_t sums, int rows) {
  for (int i = 0; i < rows; ++i) {
    const int stage = i % STAGES, round = i / STAGES;
    wait(&shared.full[stage], round % 2);
    after_barrier();
    multiply_row(sums, shared.a[stage], shared.b[stage], i == 0);
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
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* __restrict__ out,
            int64_t m, int64_t n, int64_t k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int top = blockIdx.y * TILE_M, left = blockIdx.x * TILE_N, rows = ceil_div(k, ROW);
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
    take_columns<TILE_N>(&shared.sums);
  }
  before_barrier();
  __syncthreads();
  after_barrier();

  const uint32_t sums = shared.sums;
  if (warp == COPIER) {
    if (lane == 0) produce(shared, a, b, top, left, rows);
  } else if (warp == MULTIPLIER) {
    if (lane == 0) consume(shared, sums, rows);
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
    give_columns<TILE_N>(sums);
  }
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  CUtensorMap map_a, map_b;
  TRY(describe(&map_a, a, m, k, TILE_M));
  TRY(describe(&map_b, b, n, k, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  product<<<dim3(ceil_div(n, TILE_N), ceil_div(m, TILE_M)), THREADS, BYTES, stream>>>(map_a, map_b, out, m, n, k);
  return cudaGetLastError();
}
