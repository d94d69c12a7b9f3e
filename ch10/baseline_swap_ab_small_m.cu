// out = x weight^T: wgmma reads its right operand from shared memory alone, so widened weights go back there.
// targets: sm_90a (wgmma exists on Hopper alone)
#include <cuda_fp8.h>

#include "wgmma.cuh"

constexpr int TOKENS = 64, OUTPUTS = 128;  // of a tile: TMA fills rows that x has not with zeros
constexpr int DEPTH = 128;                 // features of a stage: a row of codes has 128 bytes, of x twice as many
constexpr int CONSUMERS = 2;               // warpgroups that take stages in turn: one widens while one multiplies
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;
static_assert(STAGES % CONSUMERS == 0);  // a group that skips a phase of a barrier may take an older one for the next

struct Shared {  // numbers of fp16 are moved as bf16
  bf16 x[STAGES][2][TOKENS * ROW];
  uint8_t codes[STAGES][OUTPUTS * DEPTH];
  bf16 wide[CONSUMERS][2][OUTPUTS * ROW];
  Barrier full[STAGES], empty[STAGES];
};

// Two e4m3 numbers as fp16.
__device__ uint32_t widened(uint32_t codes) {
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(uint16_t(codes)));
  return pair;
}

__device__ void produce(Shared& shared, const CUtensorMap& x, const CUtensorMap& codes, int left, int steps) {
  for (int i = 0; i < steps; ++i) {
    const int stage = i % STAGES;
    wait(&shared.empty[stage], (i / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.x[0]) + sizeof(shared.codes[0]));
    load_box(shared.codes[stage], &codes, i * DEPTH, left, &shared.full[stage]);
    load_box(shared.x[stage][0], &x, i * DEPTH, 0, &shared.full[stage]);
    load_box(shared.x[stage][1], &x, i * DEPTH + ROW, 0, &shared.full[stage]);
  }
}

// Eight codes at a time: 16 bytes in the swizzled tile of 64 features.
__device__ void widen(bf16 (&wide)[2][OUTPUTS * ROW], const uint8_t* tile) {
#pragma unroll
  for (int i = threadIdx.x % GROUP_THREADS; i < OUTPUTS * DEPTH / 8; i += GROUP_THREADS) {
    const uint2 codes = reinterpret_cast<const uint2*>(tile)[i];
    const int row = i / (DEPTH / 8), piece = i % (DEPTH / 8);
    *reinterpret_cast<uint4*>(reinterpret_cast<uint8_t*>(wide[piece / 8]) + swizzled(row, piece % 8)) = {
        widened(codes.x), widened(codes.x >> 16), widened(codes.y), widened(codes.y >> 16)};
  }
}

__device__ void multiply_stage(float (&sum)[OUTPUTS / 2], const bf16 (&x)[2][TOKENS * ROW],
                               const bf16 (&wide)[2][OUTPUTS * ROW]) {
  hold(sum);
  fence_products();
#pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k) {
    multiply_half(sum, descriptor(x[k / 4]) + 2 * (k % 4), descriptor(wide[k / 4]) + 2 * (k % 4));
  }
  commit_products();
  hold(sum);
}

__device__ void consume(Shared& shared, float (&sum)[OUTPUTS / 2], int group, int steps) {
  for (int i = group; i < steps; i += CONSUMERS) {
    const int stage = i % STAGES;
    wait(&shared.full[stage], i / STAGES % 2);
    sync_group(1 + group);  // the last products of all four warps have ended
    widen(shared.wide[group], shared.codes[stage]);
    publish_tile();
    sync_group(1 + group);
    multiply_stage(sum, shared.x[stage], shared.wide[group]);
    finish_products(sum);
    if (threadIdx.x % 32 == 0) arrive(&shared.empty[stage]);
  }
}

// The groups' sums of a tile, added and scaled by outputs. A thread's are two tokens', and pairs of outputs.
__device__ void store_tile(float (&sum)[OUTPUTS / 2], const float* parts, const float* scales, __half* out, int left,
                           int m, int n) {
  const int token = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = left + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < OUTPUTS / 2; ++i) {
#pragma unroll
    for (int group = 1; group < CONSUMERS; ++group) {
      sum[i] += parts[(group * OUTPUTS / 2 + i) * GROUP_THREADS + threadIdx.x];
    }
  }
#pragma unroll
  for (int i = 0; i < OUTPUTS / 2; i += 2) {
    const int row = token + i / 2 % 2 * 8, output = column + i / 4 * 8;
    if (row < m && output < n) {
      const auto pair = __floats2half2_rn(sum[i] * scales[output], sum[i + 1] * scales[output + 1]);
      *reinterpret_cast<__half2*>(out + int64_t(row) * n + output) = pair;
    }
  }
}

__global__ void __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap codes,
            const float* __restrict__ scales, __half* __restrict__ out, int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int left = blockIdx.x * OUTPUTS, steps = ceil_div(k, DEPTH), group = group_of_thread();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], GROUP_THREADS / 32);  // a warp of the group whose turn it is arrives once
    }
    publish_barriers();
  }
  __syncthreads();

  float sum[OUTPUTS / 2] = {};
  float* const parts = reinterpret_cast<float*>(shared.wide);  // a group's own, after its products
  static_assert(sizeof(shared.wide[0]) == sizeof(sum) * GROUP_THREADS);
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) produce(shared, x, codes, left, steps);
  } else {
    consume(shared, sum, group, steps);
    sync_group(1 + group);
    if (group > 0) {
#pragma unroll
      for (int i = 0; i < OUTPUTS / 2; ++i) {
        parts[(group * OUTPUTS / 2 + i) * GROUP_THREADS + threadIdx.x % GROUP_THREADS] = sum[i];
      }
    }
  }
  __syncthreads();
  if (group == 0) store_tile(sum, parts, scales, out, left, m, n);
}

extern "C" int multiply(const __half* x, const __nv_fp8_e4m3* weight, const float* scales, __half* out, int64_t m,
                        int64_t n, int64_t k, cudaStream_t stream) {
  if (m > TOKENS || n % 2 || k % 16) return cudaErrorInvalidValue;
  CUtensorMap map_x, map_codes;
  TRY(describe(&map_x, reinterpret_cast<const bf16*>(x), m, k, TOKENS));
  TRY(describe(&map_codes, reinterpret_cast<const uint8_t*>(weight), {k, n}, {DEPTH, OUTPUTS},
               CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  product<<<ceil_div(n, OUTPUTS), THREADS, BYTES, stream>>>(map_x, map_codes, scales, out, m, n, k);
  return cudaGetLastError();
}
