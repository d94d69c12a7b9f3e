// A ring of tiles, each with its mbarrier: TMA fills the next ones while the tensor cores work on this one.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 128;  // of the result, a block; two warpgroups, 64 rows each
constexpr int THREADS = 2 * GROUP_THREADS;
constexpr int STAGES = 3;  // 96 KiB: two blocks fit a multiprocessor
constexpr int BAND = 16;  // rows of tiles

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  Barrier full[STAGES];
};

__global__ void __launch_bounds__(THREADS, 2)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* __restrict__ out,
            int64_t m, int64_t n, int64_t k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int top = (blockIdx.z * BAND + blockIdx.x) * TILE_M, left = blockIdx.y * TILE_N, group = group_of_thread();
  if (top >= m) return;  // the last band may have fewer rows
  const int rows = ceil_div(k, ROW);
  const auto load = [&](int i) {
    const int stage = i % STAGES;
    arrive_and_expect(&shared.full[stage], sizeof(shared.a[0]) + sizeof(shared.b[0]));
    load_box(shared.a[stage], &a, i * ROW, top, &shared.full[stage]);
    load_box(shared.b[stage], &b, i * ROW, left, &shared.full[stage]);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(&shared.full[stage], 1);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES && i < rows; ++i) load(i);
  }

  float sum[TILE_N / 2] = {};
  for (int i = 0; i < rows; ++i) {
    const int stage = i % STAGES;
    wait(&shared.full[stage], i / STAGES % 2);
    multiply_row(sum, shared.a[stage] + group * 64 * ROW, shared.b[stage]);
    wait_for_products<1>();  // those of the row before have ended; these go on
    __syncthreads();         // in both warpgroups, so its stage is free
    if (threadIdx.x == 0 && i >= 1 && i - 1 + STAGES < rows) load(i - 1 + STAGES);
  }
  finish_products(sum);
  store_sums(sum, out, int64_t(top) + group * 64, left, m, n);
}

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  CUtensorMap map_a, map_b;
  TRY(describe(&map_a, a, m, k, TILE_M));
  TRY(describe(&map_b, b, n, k, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  // Blocks begin in the order of x, y, z: down a band of BAND rows of tiles, column by column, and then down the next.
  // What is in work at one time is nearly square: it reads few rows of a and b, which the L2 cache still holds.
  const dim3 grid(BAND, ceil_div(n, TILE_N), ceil_div(m, BAND * TILE_M));
  product<<<grid, THREADS, BYTES, stream>>>(map_a, map_b, out, m, n, k);
  return cudaGetLastError();
}
