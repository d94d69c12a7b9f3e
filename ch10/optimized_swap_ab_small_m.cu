// out^T = weight x^T: widened weights stay in registers, which wgmma takes as its left operand, and x is 16 columns.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int TOKENS = 16, OUTPUTS = 128;  // of a tile
constexpr int DEPTH = 128;                 // features of a stage
constexpr int HALVES = OUTPUTS / 64;       // of a tile: a product has 64 rows
constexpr int CONSUMERS = 2;               // warpgroups that take stages in turn: one widens while one multiplies
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 10;
static_assert(STAGES % CONSUMERS == 0);  // a group that skips a phase of a barrier may take an older one for the next

struct Shared {  // numbers of fp16 are moved as bf16
  bf16 x[STAGES][2][TOKENS * ROW];
  uint4 codes[STAGES][HALVES][DEPTH / 32][GROUP_THREADS];  // of a lane's fragments of two products
  Barrier full[STAGES], empty[STAGES];
  float parts[CONSUMERS][HALVES * TOKENS / 2][GROUP_THREADS];
};

// Two e4m3 numbers as fp16.
__device__ uint32_t widened(uint32_t codes) {
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(uint16_t(codes)));
  return pair;
}

// sum[64 outputs, 16 tokens] += a b^T: a lane's fragment of 16 features, and a tile of x.
__device__ void multiply_held(float (&sum)[TOKENS / 2], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, "
      "1, 1, 1, 0;"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ void produce(Shared& shared, const CUtensorMap& x, const uint4* codes, int steps) {
  for (int i = 0; i < steps; ++i) {
    const int stage = i % STAGES;
    wait(&shared.empty[stage], (i / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.x[0]) + sizeof(shared.codes[0]));
    load_row(shared.codes[stage], codes + i * int64_t(sizeof(shared.codes[0]) / sizeof(uint4)),
             sizeof(shared.codes[0]), &shared.full[stage]);
    load_box(shared.x[stage][0], &x, i * DEPTH, 0, &shared.full[stage]);
    load_box(shared.x[stage][1], &x, i * DEPTH + ROW, 0, &shared.full[stage]);
  }
}

__device__ void consume(Shared& shared, float (&sum)[HALVES][TOKENS / 2], int group, int steps) {
  for (int i = group; i < steps; i += CONSUMERS) {
    const int stage = i % STAGES;
    wait(&shared.full[stage], i / STAGES % 2);
    const uint64_t of_x[2] = {descriptor(shared.x[stage][0]), descriptor(shared.x[stage][1])};
    uint32_t wide[HALVES][DEPTH / 16][4];
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {  // the second is widened while the first is multiplied
#pragma unroll
      for (int k = 0; k < DEPTH / 16; k += 2) {
        const uint4 codes = shared.codes[stage][half][k / 2][threadIdx.x % GROUP_THREADS];
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int j = 0; j < 8; ++j) wide[half][k + j / 4][j % 4] = widened(words[j / 2] >> j % 2 * 16);
      }
      hold(sum[half]);
      fence_products();
#pragma unroll
      for (int k = 0; k < DEPTH / 16; ++k) multiply_held(sum[half], wide[half][k], of_x[k / 4] + 2 * (k % 4));
      commit_products();
      hold(sum[half]);
    }
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
    product(const __grid_constant__ CUtensorMap x, const uint4* __restrict__ codes, const float* __restrict__ scales,
            __half* __restrict__ out, int m, int n, int k) {
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
    constexpr int PIECES = sizeof(shared.codes[0]) / sizeof(uint4);
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) produce(shared, x, codes + int64_t(blockIdx.x) * steps * PIECES, steps);
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

// `codes` has the order of `packed` in the Python file.
extern "C" int multiply(const __half* x, const uint8_t* codes, const float* scales, __half* out, int64_t m, int64_t n,
                        int64_t k, cudaStream_t stream) {
  if (m > TOKENS || k % 8) return cudaErrorInvalidValue;
  CUtensorMap map_x;
  TRY(describe(&map_x, reinterpret_cast<const bf16*>(x), m, k, TOKENS));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  product<<<ceil_div(n, OUTPUTS), THREADS, BYTES, stream>>>(map_x, reinterpret_cast<const uint4*>(codes), scales, out,
                                                            m, n, k);
  return cudaGetLastError();
}
