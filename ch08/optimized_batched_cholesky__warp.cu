// Cholesky factors of 32 x 32 matrices in registers: a lane of a warp has a row of its matrix, shuffles pass columns.
//
// Lane l of a matrix holds rows l, l + LANES, and so on. One shuffle passes a number of each of the warp's matrices.
// Rows pass through shared memory on their way in and out, so that global memory is read and written along lines.
// A matrix that is not positive definite has no factor: zeros are written.
#include "ampere.cuh"

#include <utility>

constexpr int SIDE = 32, PIECES = SIDE / 4;  // of a row, four numbers each
constexpr int PLACES = SIDE * PIECES;        // of a matrix in shared memory
constexpr int LANES = 32, EACH = 32 / LANES;  // lanes of a matrix; matrices of a warp, and rows of a lane
constexpr int WARPS = 1;                     // of a block

// Where a piece of a row lies: lanes that read the same piece of neighbouring rows meet no bank twice.
__device__ inline int place(int row, int piece) { return row * PIECES + (piece ^ row % PIECES); }

// Column k: of the pivot's row the root, of all rows below the quotients, and of what is right of it the update. All
// places are constants, so rows stay in registers.
template <int k>
__device__ inline void factor_column(float (&rows)[EACH][SIDE], int& failed) {
  const float pivot = __shfl_sync(~0u, rows[k / LANES][k], k % LANES, LANES);
  if (failed == 0 && !(pivot > 0.0f)) failed = k + 1;
  const float scale = rsqrtf(pivot);
#pragma unroll
  for (int r = k / LANES; r < EACH; ++r) rows[r][k] *= scale;
#pragma unroll
  for (int j = k + 1; j < SIDE; ++j) {
    const float factor = __shfl_sync(~0u, rows[j / LANES][k], j % LANES, LANES);
#pragma unroll
    for (int r = j / LANES; r < EACH; ++r) rows[r][j] -= rows[r][k] * factor;
  }
}

template <int... k>
__device__ inline int factor_rows(float (&rows)[EACH][SIDE], std::integer_sequence<int, k...>) {
  int failed = 0;
  (factor_column<k>(rows, failed), ...);
  return failed;
}

__global__ void __launch_bounds__(32 * WARPS)
    factor_in_registers(const float4* __restrict__ a, float4* __restrict__ out, int* __restrict__ info, int count) {
  __shared__ float4 memory[WARPS][EACH][PLACES];
  auto& tiles = memory[threadIdx.x / 32];
  const int lane = threadIdx.x % 32, first = (blockIdx.x * WARPS + threadIdx.x / 32) * EACH;
  const int live = min(EACH, count - first), piece = lane % PIECES;
#pragma unroll
  for (int m = 0; m < EACH; ++m) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {  // rows 4 i to 4 i + 3, up to the piece with the diagonal
      const int row = 4 * i + lane / PIECES;
      if (m < live && piece <= i) {
        copy_async<16>(&tiles[m][place(row, piece)], a + int64_t(first + m) * PLACES + row * PIECES + piece);
      }
    }
  }
  wait_for_all_copies();
  __syncwarp();

  const int own = lane % LANES, mine = lane / LANES;
  float rows[EACH][SIDE];
#pragma unroll
  for (int r = 0; r < EACH; ++r) {
#pragma unroll
    for (int c = 0; 4 * c < (r + 1) * LANES; ++c) {
      const float4 four = tiles[mine][place(r * LANES + own, c)];
      rows[r][4 * c] = four.x, rows[r][4 * c + 1] = four.y, rows[r][4 * c + 2] = four.z, rows[r][4 * c + 3] = four.w;
    }
  }
  const int failed = factor_rows(rows, std::make_integer_sequence<int, SIDE>{});
  if (own == 0 && mine < live) info[first + mine] = failed;
#pragma unroll
  for (int r = 0; r < EACH; ++r) {
    const int row = r * LANES + own;
#pragma unroll
    for (int j = 0; j < (r + 1) * LANES; ++j) rows[r][j] = j <= row && failed == 0 ? rows[r][j] : 0.0f;
#pragma unroll
    for (int c = 0; 4 * c < (r + 1) * LANES; ++c) {
      tiles[mine][place(row, c)] =
          make_float4(rows[r][4 * c], rows[r][4 * c + 1], rows[r][4 * c + 2], rows[r][4 * c + 3]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int m = 0; m < EACH; ++m) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      const int row = 4 * i + lane / PIECES;
      const float4 four = piece <= i ? tiles[m][place(row, piece)] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (m < live) out[int64_t(first + m) * PLACES + row * PIECES + piece] = four;
    }
  }
}

extern "C" int factor(const float* a, float* out, int* info, int64_t count, cudaStream_t stream) {
  factor_in_registers<<<ceil_div(count, WARPS * EACH), 32 * WARPS, 0, stream>>>(
      reinterpret_cast<const float4*>(a), reinterpret_cast<float4*>(out), info, int(count));
  return cudaGetLastError();
}
