// A warp multiplies 16 x 8 x 16 fragments on the matrix unit, fed by a ring of tiles that cp.async fills ahead.
#include "ampere.cuh"

constexpr int WARP = 64;                 // rows and columns of the result, a warp
constexpr int WARPS_M = 2, WARPS_N = 4;  // of a block, which has a multiprocessor for itself
constexpr int DEPTH = 32;                // of k, in a stage
constexpr int STAGES = 4;                // 96 KiB, which every GPU since sm_80 gives a block
static_assert(STAGES >= 3, "one is read, the next arrives, another is filled");

constexpr int SIDE = 16;             // of k in a product, and rows of a; two products of 8 columns share a load of b
constexpr int LOADS = WARP / SIDE;   // of four registers, for each of a and b in a step
constexpr int STEPS = DEPTH / SIDE;  // products along k in a stage
static_assert(STEPS % 2 == 0, "two sets of fragments take turns");
constexpr int TILE_M = WARPS_M * WARP, TILE_N = WARPS_N * WARP, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int PIECE = 8, PIECES = DEPTH / PIECE;  // elements of 16 bytes, and how many of them make a row of a tile
constexpr int ROW = DEPTH * sizeof(bf16);         // bytes
constexpr int STAGE = (TILE_M + TILE_N) * ROW;    // bytes: the tile of a, then that of b

// Rows follow each other without a gap: a sector of memory, 32 bytes, that would lie here across a border of 32 bytes
// is fetched from L2 twice. The pieces of a row change places, so that the same one of eight rows differs in its banks.
__device__ int place(int row, int piece) { return row * ROW + (piece ^ row * ROW / 128 % PIECES) * 16; }

// Which column of the result a row of b's tile makes: of four products, a lane then holds eight columns side by side.
__device__ int column_of(int row) { return row / 32 * 32 + row % 8 / 2 * 8 + row / 8 % 4 * 2 + row % 2; }

// Start copying the step-th part of a tile, DEPTH wide; unless the sizes are whole, with zeros beyond [rows, k].
template <bool whole, int tile_rows, bool of_b>
__device__ void load_part(uint32_t tile, const bf16* matrix, int64_t row, int64_t column, int64_t rows, int64_t k) {
  constexpr int AT_ONCE = THREADS / PIECES;
  static_assert(AT_ONCE % 32 == 0 && tile_rows % AT_ONCE == 0, "places and columns of rows repeat after 32");
  const int first = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
  const int64_t from_row = row + (of_b ? column_of(first) : first);
  const bf16* from = matrix + from_row * k + column + piece * PIECE;
  uint32_t to = tile + place(first, piece);
#pragma unroll
  for (int r = 0; r < tile_rows; r += AT_ONCE) {
    if constexpr (whole) {
      copy_async<16>(to, from);
    } else {
      const bool inside = from_row + r < rows && column + piece * PIECE < k;
      copy_async<16>(to, inside ? from : matrix, inside ? 16 : 0);
    }
    from += AT_ONCE * k;
    to += AT_ONCE * ROW;
  }
}

template <int pending>
__device__ void wait() {
  wait_for_copies<pending>();
  __syncthreads();
}

// Eight sums of a row, rounded on the way out.
template <bool whole>
__device__ void store(bf16* out, const float (&sum)[PIECE], int64_t row, int64_t column, int64_t m, int64_t n) {
  bf16* to = out + row * n + column;
  if constexpr (whole) {
    union {
      uint4 words;
      __nv_bfloat162 pairs[PIECE / 2];
    } piece;
#pragma unroll
    for (int i = 0; i < PIECE / 2; ++i) piece.pairs[i] = __floats2bfloat162_rn(sum[2 * i], sum[2 * i + 1]);
    *reinterpret_cast<uint4*>(to) = piece.words;
  } else {
#pragma unroll
    for (int i = 0; i < PIECE; ++i) {
      if (row < m && column + i < n) to[i] = __float2bfloat16(sum[i]);
    }
  }
}

template <bool whole>
__global__ void __launch_bounds__(THREADS)
    product(const bf16* __restrict__ a, const bf16* __restrict__ b, bf16* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t ring = shared_address(memory);
  const int64_t top = int64_t(blockIdx.y) * TILE_M, left = int64_t(blockIdx.x) * TILE_N;
  const int warp = threadIdx.x / 32, warp_top = warp / WARPS_N * WARP, warp_left = warp % WARPS_N * WARP;
  const int lane = threadIdx.x % 32, depths = ceil_div(k, DEPTH);
  constexpr int PART_M = TILE_M / STEPS, PART_N = TILE_N / STEPS;  // rows that are copied in a step
  const auto load_step = [&](uint32_t stage, int i, int step) {
    const int64_t from = int64_t(i) * DEPTH;
    load_part<whole, PART_M, false>(stage + step * PART_M * ROW, a, top + step * PART_M, from, m, k);
    load_part<whole, PART_N, true>(stage + (TILE_M + step * PART_N) * ROW, b, left + step * PART_N, from, n, k);
  };
  const auto after = [&](uint32_t stage) { return stage == ring + (STAGES - 1) * STAGE ? ring : stage + STAGE; };

  uint32_t of_a[2][LOADS][4], of_b[2][LOADS][4];  // a step is multiplied while fragments of the next are on their way
  const int a_place = place(warp_top + lane % 16, lane / 16);
  const int b_place = TILE_M * ROW + place(warp_left + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  // A step takes two pieces. They changed places by XOR, so another step's are an XOR away, not a sum.
  const auto fetch = [&](uint32_t stage, int step) {
#pragma unroll
    for (int j = 0; j < LOADS; ++j) {
      load_matrices(of_a[step % 2][j], ((stage + a_place) ^ step * 32) + j * SIDE * ROW);
      load_matrices(of_b[step % 2][j], ((stage + b_place) ^ step * 32) + j * SIDE * ROW);
    }
  };
  float sum[LOADS][2 * LOADS][4] = {};

  uint32_t reading = ring, filling = ring;
  for (int i = 0; i < STAGES - 1; ++i, filling += STAGE) {
    for (int step = 0; i < depths && step < STEPS; ++step) load_step(filling, i, step);
    commit_copies();  // one for each stage, empty at the end: they are counted
  }
  wait<STAGES - 2>();
  fetch(reading, 0);
  for (int i = 0; i < depths; ++i) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step + 1 < STEPS) {
        fetch(reading, step + 1);
      } else {
        wait<STAGES - 3>();  // the next stage is here, and all warps have fetched this one, which can be filled again
        reading = after(reading);
        fetch(reading, 0);  // after the last stage too, which brings what nobody uses
      }
      // A few copies in each step, and behind its loads: both kinds stand in one queue, and the loads are urgent.
      if (i + STAGES - 1 < depths) load_step(filling, i + STAGES - 1, step);
#pragma unroll
      for (int y = 0; y < LOADS; ++y) {
#pragma unroll
        for (int x = 0; x < 2 * LOADS; ++x) {
          const uint32_t(&pair)[4] = of_b[step % 2][x / 2];
          multiply(sum[y][x], of_a[step % 2][y], pair[x % 2 * 2], pair[x % 2 * 2 + 1]);
        }
      }
    }
    commit_copies();
    filling = after(filling);
  }

  // Of each product a lane holds two columns, from 2 (lane % 4) on, of rows lane / 4 and lane / 4 + 8.
#pragma unroll
  for (int y = 0; y < 2 * LOADS; ++y) {
#pragma unroll
    for (int x = 0; x < 2 * LOADS; x += 4) {
      float side_by_side[PIECE];
#pragma unroll
      for (int i = 0; i < PIECE; ++i) side_by_side[i] = sum[y / 2][x + i / 2][y % 2 * 2 + i % 2];
      store<whole>(out, side_by_side, top + warp_top + y * 8 + lane / 4, left + warp_left + x * 8 + lane % 4 * PIECE, m,
                   n);
    }
  }
}

template <bool whole>
int launch(const bf16* a, const bf16* b, bf16* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  constexpr int BYTES = STAGES * STAGE;
  TRY(cudaFuncSetAttribute(product<whole>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const auto carve_out = cudaFuncAttributePreferredSharedMemoryCarveout;  // room for the ring; L1 is not used
  TRY(cudaFuncSetAttribute(product<whole>, carve_out, cudaSharedmemCarveoutMaxShared));
  product<whole><<<dim3(ceil_div(n, TILE_N), ceil_div(m, TILE_M)), THREADS, BYTES, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  if (k % PIECE) return cudaErrorInvalidValue;  // rows of a and b must begin at multiples of 16 bytes
  const bool whole = m % TILE_M == 0 && n % TILE_N == 0 && k % DEPTH == 0;
  return whole ? launch<true>(a, b, out, m, n, k, stream) : launch<false>(a, b, out, m, n, k, stream);
}
