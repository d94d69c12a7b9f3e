// One thread asks TMA for both tiles, swizzled and bounds-checked by the copy unit, and all wait at an mbarrier.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 128;  // of the result, a block; two warpgroups, 64 rows each
constexpr int THREADS = 2 * GROUP_THREADS;
constexpr int BAND = 16;  // rows of tiles

struct Shared {
  bf16 a[TILE_M * ROW];
  bf16 b[TILE_N * ROW];
  Barrier full;
};

__global__ void __launch_bounds__(THREADS)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* __restrict__ out,
            int64_t m, int64_t n, int64_t k) {
  __shared__ __align__(1024) Shared shared;
  const int top = (blockIdx.z * BAND + blockIdx.x) * TILE_M, left = blockIdx.y * TILE_N, group = group_of_thread();
  if (top >= m) return;  // the last band may have fewer rows
  if (threadIdx.x == 0) {
    init(&shared.full, 1);
    publish_barriers();
  }
  __syncthreads();

  float sum[TILE_N / 2] = {};
  const int rows = ceil_div(k, ROW);
  for (int i = 0; i < rows; ++i) {
    if (threadIdx.x == 0) {
      arrive_and_expect(&shared.full, sizeof(shared.a) + sizeof(shared.b));
      load_box(shared.a, &a, i * ROW, top, &shared.full);
      load_box(shared.b, &b, i * ROW, left, &shared.full);
    }
    wait(&shared.full, i % 2);
    multiply_row(sum, shared.a + group * 64 * ROW, shared.b);
    finish_products(sum);
    __syncthreads();  // both warpgroups have read the tiles
  }
  store_sums(sum, out, int64_t(top) + group * 64, left, m, n);
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  CUtensorMap map_a, map_b;
  TRY(describe(&map_a, a, m, k, TILE_M));
  TRY(describe(&map_b, b, n, k, TILE_N));
  // Blocks begin in the order of x, y, z: down a band of BAND rows of tiles, column by column, and then down the next.
  // What is in work at one time is nearly square: it reads few rows of a and b, which the L2 cache still holds.
  const dim3 grid(BAND, ceil_div(n, TILE_N), ceil_div(m, BAND * TILE_M));
  product<<<grid, THREADS, 0, stream>>>(map_a, map_b, out, m, n, k);
  return cudaGetLastError();
}
