// Split-k product whose blocks are a cluster: they add their parts through distributed shared memory.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "cluster.cuh"
#include "wgmma.cuh"

constexpr int TILE_M = 64, TILE_N = 128;
constexpr int THREADS = GROUP_THREADS + 32;  // a warpgroup that multiplies, a warp that copies
constexpr int STAGES = 9;  // 216 KiB: a block has a multiprocessor to itself
constexpr int SPLITS = 2;  // blocks that share the sums of a tile, and the cluster

struct Shared {
  bf16 x[STAGES][TILE_M * ROW];
  bf16 weight[STAGES][TILE_N * ROW];
  Barrier full[STAGES], empty[STAGES];
};

__device__ void produce(Shared& shared, const CUtensorMap& x, const CUtensorMap& weight, int left, int first,
                        int last) {
  const uint32_t rows = last - first, begin = left / TILE_N * rows / ceil_div(gridDim.x, SPLITS);  // each elsewhere
  for (uint32_t turn = 0; turn < rows; ++turn) {
    const uint32_t stage = turn % STAGES;
    const int i = first + (turn + begin) % rows;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.x[0]) + sizeof(shared.weight[0]));
    load_box(shared.weight[stage], &weight, i * ROW, left, &shared.full[stage]);
    load_box(shared.x[stage], &x, i * ROW, 0, &shared.full[stage]);
  }
}

__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int rows) {
  for (int i = 0; i < rows; ++i) {
    wait(&shared.full[i % STAGES], i / STAGES % 2);
    multiply_row(sum, shared.x[i % STAGES], shared.weight[i % STAGES]);
    wait_for_products<1>();  // those of the row before have ended, so its stage is free
    if (i >= 1 && threadIdx.x % 32 == 0) arrive(&shared.empty[(i - 1) % STAGES]);
  }
  finish_products(sum);
}

// Every thread puts its 64 sums into shared memory, thread beside thread, so that all blocks have the same sums at
// the same place. Each block then adds its share of them.
__device__ void add_parts(float4* parts, const float (&sum)[TILE_N / 2], bool multiplies, int rank, bf16* out, int left,
                          int m, int n) {
  if (multiplies) {
    sync_group(1);  // all warps have read the stages, whose place the parts take
#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j) {
      parts[j * GROUP_THREADS + threadIdx.x] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
    }
  }
  sync_cluster();  // all parts are there
  if (multiplies) {
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = left + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE_N / 8 / SPLITS; ++i) {
      const int j = rank * (TILE_N / 8 / SPLITS) + i;
      float4 part[SPLITS];
#pragma unroll
      for (int s = 0; s < SPLITS; ++s) part[s] = load_at(parts + j * GROUP_THREADS + threadIdx.x, s);
      float4 all = part[0];
#pragma unroll
      for (int s = 1; s < SPLITS; ++s) {
        all = {all.x + part[s].x, all.y + part[s].y, all.z + part[s].z, all.w + part[s].w};
      }
      auto* to = out + int64_t(row) * n + column + 8 * j;
      const bool inside = column + 8 * j < n;
      if (inside && row < m) *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(all.x, all.y);
      if (inside && row + 8 < m) *reinterpret_cast<__nv_bfloat162*>(to + 8 * n) = __floats2bfloat162_rn(all.z, all.w);
    }
  }
  sync_cluster();  // no block may end while another reads its parts
}

__global__ void __cluster_dims__(SPLITS) __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weight,
            bf16* __restrict__ out, int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int split = blockIdx.x % SPLITS, left = blockIdx.x / SPLITS * TILE_N;
  const int rows = ceil_div(k, ROW), first = rows * split / SPLITS, last = rows * (split + 1) / SPLITS;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], GROUP_THREADS / 32);  // a warp arrives once
    }
    publish_barriers();
  }
  __syncthreads();
  float sum[TILE_N / 2] = {};
  const bool multiplies = group_of_thread() == 0;
  if (multiplies) {
    consume(shared, sum, last - first);
  } else if (threadIdx.x == GROUP_THREADS) {
    produce(shared, x, weight, left, first, last);
  }
  static_assert(sizeof(shared.x) >= sizeof(sum) * GROUP_THREADS, "the parts take the place of x");
  add_parts(reinterpret_cast<float4*>(shared.x), sum, multiplies, split, out, left, m, n);
}

extern "C" int multiply(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out, int64_t m,
                        int64_t n, int64_t k, cudaStream_t stream) {
  if (m > TILE_M) return cudaErrorInvalidValue;
  CUtensorMap map_x, map_weight;
  TRY(describe(&map_x, x, m, k, TILE_M));
  TRY(describe(&map_weight, weight, n, k, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const int64_t blocks = SPLITS * ceil_div(n, TILE_N);
  product<<<blocks, THREADS, BYTES, stream>>>(map_x, map_weight, out, m, n, k);
  return cudaGetLastError();
}
