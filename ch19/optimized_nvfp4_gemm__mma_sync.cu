// mma.sync takes packed codes and their scales from registers, without tensor memory. Compiled for sm_120a, not run.
// targets: sm_120a, sm_121a (mma.sync, kind::mxf4nvf4)
#include "ampere.cuh"

constexpr int SIDE = 128;     // rows and columns of the result, a block
constexpr int THREADS = 256;  // 2 x 4 warps
constexpr int PARTS = 4;      // products of a warp down and across: 64 x 32 of the result
constexpr int STAGES = 4;     // 72 KiB: sm_120 gives a block 99

// A product takes 64 codes of a row, 32 bytes. A stage has 128 codes of each row: four pieces of 16 bytes.
constexpr int DEPTH = 64, STEPS = 2;
constexpr int PIECES = 4, ROW = 16 * PIECES;
constexpr int BLOCK = 512;  // bytes: the scales of 128 rows by 64 codes

struct Stage {
  uint8_t a[SIDE * ROW], b[SIDE * ROW];
  uint8_t a_scales[STEPS * BLOCK], b_scales[STEPS * BLOCK];
};

// Where a piece of a row stands. Eight rows of one piece, which ldmatrix reads at once, lie in different banks.
__device__ int place(int row, int piece) { return row * ROW + (piece ^ row / 2 % PIECES) * 16; }

// Start copying a stage of 128 rows of codes; beyond the matrix, rows of `width` bytes, there are zeros.
__device__ void load_codes(uint8_t* tile, const uint8_t* codes, int64_t top, int64_t left, int64_t rows,
                           int64_t width) {
#pragma unroll
  for (int i = threadIdx.x; i < SIDE * PIECES; i += THREADS) {
    const int64_t row = top + i / PIECES, column = left + i % PIECES * 16;
    const bool inside = row < rows && column < width;
    copy_async<16>(tile + place(i / PIECES, i % PIECES), inside ? codes + row * width + column : codes,
                   inside ? 16 : 0);
  }
}

// The same of their scales: blocks one after another along k, zeros beyond the last of `steps`.
__device__ void load_scales(uint8_t* to, const uint8_t* scales, int64_t rows, int64_t first, int64_t steps) {
  const int piece = threadIdx.x;
  if (piece < STEPS * BLOCK / 16) {
    const bool inside = first + piece * 16 / BLOCK < steps;
    copy_async<16>(to + piece * 16, inside ? scales + (rows * steps + first) * BLOCK + piece * 16 : scales,
                   inside ? 16 : 0);
  }
}

// sum[16, 8] += (a times scales)[16, 64] (b times scales)[8, 64]^T. A word of scales has the four groups of a row. With
// selectors of 0, lanes 4 r and 4 r + 1 give those of rows r and r + 8 of a, and lane 4 r those of row r of b.
__device__ void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t a_scales,
                         uint32_t b_scales) {
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, 0}, %11, {0, 0};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(a_scales), "r"(b_scales));
}

// A warp's parts are 32 rows apart, as are the four rows whose scales lie in 16 bytes: one load brings those of all.
__device__ void multiply_step(float (&sum)[PARTS][PARTS][4], const Stage& stage, int step, int row_a, int row_b) {
  const int lane = threadIdx.x % 32;
  uint32_t a[PARTS][4], b[PARTS / 2][4], a_scales[PARTS], b_scales[PARTS];
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    load_matrices(a[i], stage.a + place(row_a + 32 * i + lane % 16, 2 * step + lane / 16));
  }
#pragma unroll
  for (int i = 0; i < PARTS / 2; ++i) {  // two parts: of each the first 16 bytes, then the last
    load_matrices(b[i], stage.b + place(row_b + 32 * (2 * i + lane / 16) + lane % 8, 2 * step + lane / 8 % 2));
  }
  const int scales_a = step * BLOCK + (row_a + lane / 4 + lane % 2 * 8) * 16;
  const int scales_b = step * BLOCK + (row_b + lane / 4) * 16;
  *reinterpret_cast<uint4*>(a_scales) = *reinterpret_cast<const uint4*>(stage.a_scales + scales_a);
  *reinterpret_cast<uint4*>(b_scales) = *reinterpret_cast<const uint4*>(stage.b_scales + scales_b);
#pragma unroll
  for (int y = 0; y < PARTS; ++y) {
#pragma unroll
    for (int x = 0; x < PARTS; ++x) {
      multiply(sum[y][x], a[y], b[x / 2][x % 2 * 2], b[x / 2][x % 2 * 2 + 1], a_scales[y], b_scales[x]);
    }
  }
}

__global__ void __launch_bounds__(THREADS)
    product(const uint8_t* __restrict__ a, const uint8_t* __restrict__ a_scales, const uint8_t* __restrict__ b,
            const uint8_t* __restrict__ b_scales, bf16* __restrict__ out, int64_t m, int64_t n, int64_t k) {
  extern __shared__ __align__(128) uint8_t memory[];
  Stage* const ring = reinterpret_cast<Stage*>(memory);
  const int64_t top = int64_t(blockIdx.y) * SIDE, left = int64_t(blockIdx.x) * SIDE, steps = k / DEPTH;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row_a = warp / 4 * 16, row_b = warp % 4 * 8;
  const int rounds = ceil_div(steps, STEPS);
  float sum[PARTS][PARTS][4] = {};
  const auto load = [&](int i) {  // a group for each stage, empty at the end, so that they can be counted
    if (i < rounds) {
      Stage& stage = ring[i % STAGES];
      load_codes(stage.a, a, top, int64_t(i) * ROW, m, k / 2);
      load_codes(stage.b, b, left, int64_t(i) * ROW, n, k / 2);
      load_scales(stage.a_scales, a_scales, blockIdx.y, i * STEPS, steps);
      load_scales(stage.b_scales, b_scales, blockIdx.x, i * STEPS, steps);
    }
    commit_copies();
  };
  for (int i = 0; i < STAGES - 1; ++i) load(i);

  for (int i = 0; i < rounds; ++i) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();  // this stage is here, and all warps are done with the one before, which is filled next
    load(i + STAGES - 1);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) multiply_step(sum, ring[i % STAGES], step, row_a, row_b);
  }

  // Of each product a lane holds two columns, from 2 (lane % 4) on, of rows lane / 4 and lane / 4 + 8.
#pragma unroll
  for (int y = 0; y < PARTS; ++y) {
#pragma unroll
    for (int x = 0; x < PARTS; ++x) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = top + row_a + 32 * y + lane / 4 + 8 * i;
        const int64_t column = left + row_b + 32 * x + lane % 4 * 2;
        if (row < m && column < n) {
          const auto pair = __floats2bfloat162_rn(sum[y][x][2 * i], sum[y][x][2 * i + 1]);
          *reinterpret_cast<__nv_bfloat162*>(out + row * n + column) = pair;
        }
      }
    }
  }
}

// Codes are [m, k / 2] and [n, k / 2], two a byte; scales are blocks in the order that `blocked` makes.
extern "C" int gemm(const uint8_t* a, const uint8_t* a_scales, const uint8_t* b, const uint8_t* b_scales,
                    __nv_bfloat16* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  if (n % 8 || k % DEPTH) return cudaErrorInvalidValue;
  constexpr int BYTES = STAGES * sizeof(Stage);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const dim3 grid(ceil_div(n, SIDE), ceil_div(m, SIDE));
  product<<<grid, THREADS, BYTES, stream>>>(a, a_scales, b, b_scales, out, m, n, k);
  return cudaGetLastError();
}
