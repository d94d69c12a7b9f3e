// A warp multiplies 16 x 16 x 16 fragments on the matrix unit, fed by a ring of tiles that cp.async fills ahead.
#include <mma.h>

#include "kernel.cuh"

using namespace nvcuda;
using bf16 = __nv_bfloat16;
constexpr int WARP = 64;                 // rows and columns of the result, a warp
constexpr int WARPS_M = 2, WARPS_N = 4;  // of a block, which has a multiprocessor for itself
constexpr int DEPTH = 32;                // of k, in a stage
constexpr int STAGES = 3;                // 90 KiB, which every GPU since sm_80 gives a block

constexpr int SIDE = 16, FRAGMENTS = WARP / SIDE;  // the matrix unit's own tile, and how many a warp has each way
constexpr int STEPS = DEPTH / SIDE;                // products along k in a stage
static_assert(STEPS % 2 == 0, "two sets of fragments take turns");
constexpr int TILE_M = WARPS_M * WARP, TILE_N = WARPS_N * WARP, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int PIECE = 8;             // elements of 16 bytes
constexpr int ROW = DEPTH + PIECE;   // eight rows of 80 bytes then begin in different banks
constexpr int SUM_ROW = SIDE + 4;    // floats

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
};
static_assert(sizeof(Shared) >= THREADS / 32 * SIDE * SUM_ROW * sizeof(float), "the sums pass through the ring");

// Start copying DEPTH elements of `tile_rows` rows; unless the sizes are whole, with zeros beyond the matrix [rows, k].
template <bool whole, int tile_rows>
__device__ void load_tile(bf16* tile, const bf16* matrix, int64_t row, int64_t column, int64_t rows, int64_t k) {
  constexpr int PIECES = DEPTH / PIECE;
  static_assert(THREADS % PIECES == 0 && tile_rows % (THREADS / PIECES) == 0);
  const int first = threadIdx.x / PIECES, offset = threadIdx.x % PIECES * PIECE;
  const bf16* from = matrix + (row + first) * k + column + offset;
  auto to = static_cast<uint32_t>(__cvta_generic_to_shared(tile + first * ROW + offset));
#pragma unroll
  for (int r = 0; r < tile_rows; r += THREADS / PIECES) {
    if constexpr (whole) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    } else {
      const bool inside = row + first + r < rows && column + offset < k;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(inside ? from : matrix),
                   "r"(inside ? 16 : 0)
                   : "memory");
    }
    from += THREADS / PIECES * k;
    to += THREADS / PIECES * ROW * sizeof(bf16);
  }
}

using OfA = wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, bf16, wmma::row_major>;
using OfB = wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, bf16, wmma::col_major>;
using Sum = wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float>;

// wmma::load_matrix_sync, told that the tile is in shared memory: nvcc 13.0 does not find out, and loads by generic
// address, four times 4 bytes a lane, where this is one ldmatrix.
#define LOAD(fragment, tile, kind)                                                                       \
  uint32_t* to = reinterpret_cast<uint32_t*>(fragment.x);                                                \
  asm volatile("wmma.load." kind ".m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"                    \
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                      \
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(tile))), "n"(ROW)                    \
               : "memory")
__device__ void load(OfA& fragment, const bf16* tile) { LOAD(fragment, tile, "a.sync.aligned.row"); }
__device__ void load(OfB& fragment, const bf16* tile) { LOAD(fragment, tile, "b.sync.aligned.col"); }

// Which lane holds which sum is the compiler's affair: through shared memory they come in rows, rounded on the way out.
template <bool whole>
__device__ void store_sums(float* place, const Sum& sum, bf16* out, int64_t top, int64_t left, int64_t m, int64_t n) {
  wmma::store_matrix_sync(place, sum, SUM_ROW, wmma::mem_row_major);
  __syncwarp();
  const int row = threadIdx.x % 32 / 2, column = threadIdx.x % 2 * PIECE;  // half a row for each lane
  const float* from = place + row * SUM_ROW + column;
  bf16* to = out + (top + row) * n + left + column;
  if constexpr (whole) {
    union {
      uint4 words;
      __nv_bfloat162 pairs[PIECE / 2];
    } piece;
#pragma unroll
    for (int i = 0; i < PIECE / 2; ++i) piece.pairs[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
    *reinterpret_cast<uint4*>(to) = piece.words;
  } else {
    for (int i = 0; i < PIECE; ++i) {
      if (top + row < m && left + column + i < n) to[i] = __float2bfloat16(from[i]);
    }
  }
  __syncwarp();
}

template <bool whole>
__global__ void __launch_bounds__(THREADS)
    product(const bf16* __restrict__ a, const bf16* __restrict__ b, bf16* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int64_t top = int64_t(blockIdx.y) * TILE_M, left = int64_t(blockIdx.x) * TILE_N;
  const int warp = threadIdx.x / 32, warp_top = warp / WARPS_N * WARP, warp_left = warp % WARPS_N * WARP;
  const int depths = ceil_div(k, DEPTH);
  const auto load_stage = [&](int i) {  // a group for each stage, empty at the end, so that they can be counted
    if (i < depths) {
      load_tile<whole, TILE_M>(shared.a[i % STAGES], a, top, int64_t(i) * DEPTH, m, k);
      load_tile<whole, TILE_N>(shared.b[i % STAGES], b, left, int64_t(i) * DEPTH, n, k);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  OfA of_a[2][FRAGMENTS];  // a step is multiplied while the fragments of the next are on their way
  OfB of_b[2][FRAGMENTS];
  const auto fetch = [&](int i, int step) {
    const bf16* a_tile = shared.a[i % STAGES] + warp_top * ROW + step * SIDE;
    const bf16* b_tile = shared.b[i % STAGES] + warp_left * ROW + step * SIDE;
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j) {
      load(of_a[step % 2][j], a_tile + j * SIDE * ROW);
      load(of_b[step % 2][j], b_tile + j * SIDE * ROW);
    }
  };
  Sum sum[FRAGMENTS][FRAGMENTS];
#pragma unroll
  for (int i = 0; i < FRAGMENTS * FRAGMENTS; ++i) wmma::fill_fragment(sum[i / FRAGMENTS][i % FRAGMENTS], 0.0f);

  for (int i = 0; i < STAGES; ++i) load_stage(i);
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
  __syncthreads();
  fetch(0, 0);
  for (int i = 0; i < depths; ++i) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step + 1 < STEPS) {
        fetch(i, step + 1);
      } else {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // the next stage is here, and all warps have fetched this one, which can be filled again
        load_stage(i + STAGES);
        fetch(i + 1, 0);  // after the last stage too, which brings what nobody uses
      }
#pragma unroll
      for (int y = 0; y < FRAGMENTS; ++y) {
#pragma unroll
        for (int x = 0; x < FRAGMENTS; ++x) {
          wmma::mma_sync(sum[y][x], of_a[step % 2][y], of_b[step % 2][x], sum[y][x]);
        }
      }
    }
  }

  __syncthreads();  // all warps have read the last stage: the ring is free
  float* place = reinterpret_cast<float*>(memory) + warp * SIDE * SUM_ROW;
#pragma unroll
  for (int y = 0; y < FRAGMENTS; ++y) {
#pragma unroll
    for (int x = 0; x < FRAGMENTS; ++x) {
      store_sums<whole>(place, sum[y][x], out, top + warp_top + y * SIDE, left + warp_left + x * SIDE, m, n);
    }
  }
}

template <bool whole>
int launch(const bf16* a, const bf16* b, bf16* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  constexpr int BYTES = sizeof(Shared);
  const auto opt_in = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(product<whole>, opt_in, BYTES)) return error;
  const auto carve_out = cudaFuncAttributePreferredSharedMemoryCarveout;  // room for the ring; L1 is not used
  if (const cudaError_t error = cudaFuncSetAttribute(product<whole>, carve_out, cudaSharedmemCarveoutMaxShared)) {
    return error;
  }
  product<whole><<<dim3(ceil_div(n, TILE_N), ceil_div(m, TILE_M)), THREADS, BYTES, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  if (k % PIECE) return cudaErrorInvalidValue;  // rows of a and b must begin at multiples of 16 bytes
  const bool whole = m % TILE_M == 0 && n % TILE_N == 0 && k % DEPTH == 0;
  return whole ? launch<true>(a, b, out, m, n, k, stream) : launch<false>(a, b, out, m, n, k, stream);
}
