// 16 x 8 results a thread, fed by cp.async and, a step of k ahead, by a second set of registers, across tiles too.
#include "ampere.cuh"

constexpr int SQUARES_M = 4, SQUARES_N = 2;  // of 4 x 4 elements, a thread
constexpr int WARPS_M = 2, WARPS_N = 4;      // of 8 x 4 lanes, a block
constexpr int DEPTH = 16;                    // of k, in shared memory at a time
constexpr int STAGES = 3;                    // as many of them: one is multiplied, the others are fetched

constexpr int WARP_M = 8 * 4 * SQUARES_M, WARP_N = 4 * 4 * SQUARES_N;
constexpr int TILE_M = WARPS_M * WARP_M, TILE_N = WARPS_N * WARP_N, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int PAD = 4;  // floats: rows of the transposed tile stay at multiples of 16 bytes, and its writes spread

struct Shared {
  float a[STAGES][DEPTH][TILE_M + PAD];  // transposed, so that rows of a are neighbours
  float b[STAGES][DEPTH][TILE_N];
};

// Start copying `bytes`, or as many zeros if the source lies outside.
template <int bytes>
__device__ void copy(float* to, const float* from, bool inside) {
  const auto place = shared_address(to);
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
  }
}

// Four floats of shared memory in one access.
__device__ void fetch(float* to, const float* from) {
  const float4 piece = *reinterpret_cast<const float4*>(from);
  to[0] = piece.x, to[1] = piece.y, to[2] = piece.z, to[3] = piece.w;
}

// Start copying a stage of sizes that are multiples of the tiles': no bounds, and rows of b 16 bytes at a time.
__device__ void load_whole(Shared& shared, int stage, const float* a, const float* b, int64_t n, int64_t k) {
  static_assert(THREADS % DEPTH == 0 && TILE_M * DEPTH % THREADS == 0);
  const int column = threadIdx.x % DEPTH, row = threadIdx.x / DEPTH;
  const float* from = a + row * k + column;
#pragma unroll
  for (int r = 0; r < TILE_M; r += THREADS / DEPTH, from += THREADS / DEPTH * k) {
    copy<4>(&shared.a[stage][column][row + r], from, true);
  }
  constexpr int PIECES = TILE_N / 4;  // of a row of b
  static_assert(THREADS % PIECES == 0 && DEPTH % (THREADS / PIECES) == 0);
  const int b_row = threadIdx.x / PIECES, b_column = threadIdx.x % PIECES * 4;
  from = b + b_row * n + b_column;
#pragma unroll
  for (int r = 0; r < DEPTH; r += THREADS / PIECES, from += THREADS / PIECES * n) {
    copy<16>(&shared.b[stage][b_row + r][b_column], from, true);
  }
}

// The same of any sizes, float by float: `rows`, `columns` and `depth` are left from here to the ends of the matrices.
__device__ void load_checked(Shared& shared, int stage, const float* a, const float* b, int64_t n, int64_t k,
                             int64_t rows, int64_t columns, int64_t depth) {
#pragma unroll 1
  for (int i = threadIdx.x; i < TILE_M * DEPTH; i += THREADS) {
    const int row = i / DEPTH, column = i % DEPTH;
    const bool inside = row < rows && column < depth;
    copy<4>(&shared.a[stage][column][row], inside ? a + row * k + column : a, inside);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < DEPTH * TILE_N; i += THREADS) {
    const int row = i / TILE_N, column = i % TILE_N;
    const bool inside = row < depth && column < columns;
    copy<4>(&shared.b[stage][row][column], inside ? b + row * n + column : b, inside);
  }
}

template <bool whole>
__global__ void __launch_bounds__(THREADS, 1)
    product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int64_t m, int64_t n,
            int64_t k) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int64_t top = int64_t(blockIdx.y) * TILE_M, left = int64_t(blockIdx.x) * TILE_N;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Eight lanes share a cycle of 16-byte accesses; in this order they want four pieces of a and two of b.
  const int x = warp % WARPS_N * WARP_N + (lane / 16 * 2 + lane % 2) * 4;
  const int y = warp / WARPS_N * WARP_M + lane / 2 % 8 * 4;
  const int depths = ceil_div(k, DEPTH);
  a += top * k;
  b += left;

  const auto load = [&](int depth, int stage) {  // after the end the last depth again, for nobody: a branch would cost
    const int64_t start = int64_t(min(depth, depths - 1)) * DEPTH;
    if constexpr (whole) load_whole(shared, stage, a + start, b + start * n, n, k);
    else load_checked(shared, stage, a + start, b + start * n, n, k, m - top, n - left, k - start);
    commit_copies();
  };
  for (int depth = 0; depth < STAGES; ++depth) load(depth, depth);

  float sum[4 * SQUARES_M][4 * SQUARES_N] = {};
  float of_a[2][4 * SQUARES_M], of_b[2][4 * SQUARES_N];  // of this step of k and of the next, in turns
  const auto read = [&](int set, int stage, int i) {
#pragma unroll
    for (int s = 0; s < SQUARES_M; ++s) fetch(of_a[set] + 4 * s, &shared.a[stage][i][y + s * 32]);
#pragma unroll
    for (int s = 0; s < SQUARES_N; ++s) fetch(of_b[set] + 4 * s, &shared.b[stage][i][x + s * 16]);
  };
  wait_for_copies<STAGES - 1>();
  __syncthreads();
  read(0, 0, 0);
  int stage = 0;
#pragma unroll 1
  for (int depth = 0; depth < depths; ++depth) {
    const int next = stage + 1 < STAGES ? stage + 1 : 0;
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      if (i + 1 < DEPTH) {
        read((i + 1) % 2, stage, i + 1);
      } else {  // the products of the last step hide the way into the next stage
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // the next stage is here, and all warps have read this one, which is filled again
        read(0, next, 0);
        load(depth + STAGES, stage);
      }
#pragma unroll
      for (int r = 0; r < 4 * SQUARES_M; ++r) {
#pragma unroll
        for (int c = 0; c < 4 * SQUARES_N; ++c) sum[r][c] += of_a[i % 2][r] * of_b[i % 2][c];
      }
    }
    stage = next;
  }
  wait_for_all_copies();
#pragma unroll
  for (int r = 0; r < 4 * SQUARES_M; ++r) {
    const int64_t row = top + y + r / 4 * 32 + r % 4;
#pragma unroll
    for (int c = 0; c < 4 * SQUARES_N; c += whole ? 4 : 1) {
      const int64_t column = left + x + c / 4 * 16 + c % 4;
      if constexpr (whole) {
        *reinterpret_cast<float4*>(out + row * n + column) = {sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]};
      } else {
        if (row < m && column < n) out[row * n + column] = sum[r][c];
      }
    }
  }
}

template <bool whole>
int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product<whole>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const dim3 grid(ceil_div(n, TILE_N), ceil_div(m, TILE_M));
  product<whole><<<grid, THREADS, BYTES, stream>>>(a, b, out, m, n, k);
  return cudaGetLastError();
}

extern "C" int sgemm(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  const bool whole = m % TILE_M == 0 && n % TILE_N == 0 && k % DEPTH == 0;
  return whole ? launch<true>(a, b, out, m, n, k, stream) : launch<false>(a, b, out, m, n, k, stream);
}
