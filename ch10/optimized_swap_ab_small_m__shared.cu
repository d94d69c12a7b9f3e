// out^T = weight x^T: tokens are wgmma's columns, 16 of them; widened weights go through shared memory all the same.
// targets: sm_90a (wgmma exists on Hopper alone)
#include <cuda_fp8.h>

#include "wgmma.cuh"

constexpr int TOKENS = 16, OUTPUTS = 128;  // of a tile
constexpr int HALVES = OUTPUTS / 64;       // of a tile: a product has 64 rows
constexpr int DEPTH = 128;                 // features of a stage: a row of codes has 128 bytes, of x twice as many
constexpr int CONSUMERS = 2;               // warpgroups that take stages in turn: one widens while one multiplies
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 6;
static_assert(STAGES % CONSUMERS == 0);  // a group that skips a phase of a barrier may take an older one for the next

struct Shared {  // numbers of fp16 are moved as bf16
  bf16 x[STAGES][2][TOKENS * ROW];
  uint8_t codes[STAGES][OUTPUTS * DEPTH];
  bf16 wide[CONSUMERS][2][OUTPUTS * ROW];
  Barrier full[STAGES], empty[STAGES];
  float parts[CONSUMERS][HALVES * TOKENS / 2][GROUP_THREADS];
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

// sum[64 outputs, 16 tokens] += a b^T, 16 features deep.
__device__ void multiply(float (&sum)[TOKENS / 2], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7])
      : "l"(a), "l"(b));
}

__device__ void multiply_stage(float (&sum)[HALVES][TOKENS / 2], const bf16 (&x)[2][TOKENS * ROW],
                               const bf16 (&wide)[2][OUTPUTS * ROW]) {
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    hold(sum[half]);
    fence_products();
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) {
      multiply(sum[half], descriptor(wide[k / 4] + half * 64 * ROW) + 2 * (k % 4), descriptor(x[k / 4]) + 2 * (k % 4));
    }
    commit_products();
    hold(sum[half]);
  }
}

__device__ void consume(Shared& shared, float (&sum)[HALVES][TOKENS / 2], int group, int steps) {
  for (int i = group; i < steps; i += CONSUMERS) {
    const int stage = i % STAGES;
    wait(&shared.full[stage], i / STAGES % 2);
    sync_group(1 + group);  // the last products of all four warps have ended
    widen(shared.wide[group], shared.codes[stage]);
    publish_tile();
    sync_group(1 + group);
    multiply_stage(sum, shared.x[stage], shared.wide[group]);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) finish_products(sum[half]);
    if (threadIdx.x % 32 == 0) arrive(&shared.empty[stage]);
  }
}

// The groups' sums of a tile, added and scaled by outputs. A thread's are two outputs' of each half, and pairs of tokens.
__device__ void store_tile(float (&sum)[HALVES][TOKENS / 2], const Shared& shared, const float* scales, __half* out,
                           int left, int m, int n) {
  const int first = left + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
#pragma unroll
    for (int i = 0; i < TOKENS / 2; ++i) {
      const int output = first + half * 64 + i / 2 % 2 * 8, token = column + i / 4 * 8 + i % 2;
#pragma unroll
      for (int group = 1; group < CONSUMERS; ++group) {
        sum[half][i] += shared.parts[group][half * TOKENS / 2 + i][threadIdx.x];
      }
      if (token < m && output < n) out[int64_t(token) * n + output] = __float2half(sum[half][i] * scales[output]);
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

  float sum[HALVES][TOKENS / 2] = {};
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) produce(shared, x, codes, left, steps);
  } else {
    consume(shared, sum, group, steps);
    if (group > 0) {
#pragma unroll
      for (int i = 0; i < HALVES * TOKENS / 2; ++i) {
        shared.parts[group][i][threadIdx.x % GROUP_THREADS] = sum[i / (TOKENS / 2)][i % (TOKENS / 2)];
      }
    }
  }
  __syncthreads();
  if (group == 0) store_tile(sum, shared, scales, out, left, m, n);
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
