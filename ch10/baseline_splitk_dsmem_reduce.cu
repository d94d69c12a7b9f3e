// Split-k product whose blocks write fp32 parts to memory, which a second kernel adds and rounds.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int TILE_M = 64, TILE_N = 128;
constexpr int THREADS = GROUP_THREADS + 32;  // a warpgroup that multiplies, a warp that copies
constexpr int STAGES = 4;
constexpr int SPLITS = 4;  // blocks that share the sums of a tile

struct Shared {
  bf16 x[STAGES][TILE_M * ROW];
  bf16 weight[STAGES][TILE_N * ROW];
  Barrier full[STAGES], empty[STAGES];
};

__device__ void produce(Shared& shared, const CUtensorMap& x, const CUtensorMap& weight, int left, int first,
                        int last) {
  for (int i = first; i < last; ++i) {
    const uint32_t turn = i - first, stage = turn % STAGES;
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

// Writes the sums that this thread holds (see store_sums) in fp32, rows within m and columns within n.
__device__ void store_part(const float (&sum)[TILE_N / 2], float* part, int left, int m, int n) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = left + threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < TILE_N / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row + 8 * i < m && column + 8 * j < n) {
        *reinterpret_cast<float2*>(part + (row + 8 * i) * n + column + 8 * j) = {sum[4 * j + 2 * i],
                                                                                 sum[4 * j + 2 * i + 1]};
      }
    }
  }
}

__global__ void __launch_bounds__(THREADS, 2)
    product(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weight,
            float* __restrict__ parts, int m, int n, int k) {
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
  if (group_of_thread() == 1) {
    if (threadIdx.x == GROUP_THREADS) produce(shared, x, weight, left, first, last);
  } else {
    float sum[TILE_N / 2] = {};
    consume(shared, sum, last - first);
    store_part(sum, parts + int64_t(split) * m * n, left, m, n);
  }
}

// Four results a thread; `count` of them are a multiple of 8.
__global__ void add_parts(const float* __restrict__ parts, bf16* __restrict__ out, int64_t count) {
  const int64_t i = 4 * (int64_t(blockIdx.x) * blockDim.x + threadIdx.x);
  if (i >= count) return;
  float4 part[SPLITS];
#pragma unroll
  for (int s = 0; s < SPLITS; ++s) part[s] = *reinterpret_cast<const float4*>(parts + s * count + i);
  float4 sum = part[0];
#pragma unroll
  for (int s = 1; s < SPLITS; ++s) {
    sum = {sum.x + part[s].x, sum.y + part[s].y, sum.z + part[s].z, sum.w + part[s].w};
  }
  auto* to = reinterpret_cast<__nv_bfloat162*>(out + i);
  to[0] = __floats2bfloat162_rn(sum.x, sum.y);
  to[1] = __floats2bfloat162_rn(sum.z, sum.w);
}

extern "C" int multiply(const __nv_bfloat16* x, const __nv_bfloat16* weight, float* parts, __nv_bfloat16* out,
                        int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  if (m > TILE_M) return cudaErrorInvalidValue;
  CUtensorMap map_x, map_weight;
  TRY(describe(&map_x, x, m, k, TILE_M));
  TRY(describe(&map_weight, weight, n, k, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const int64_t blocks = SPLITS * ceil_div(n, TILE_N);
  product<<<blocks, THREADS, BYTES, stream>>>(map_x, map_weight, parts, m, n, k);
  TRY(cudaGetLastError());
  add_parts<<<ceil_div(m * n / 4, 256), 256, 0, stream>>>(parts, out, m * n);
  return cudaGetLastError();
}
