// TMA brings the rows' scales with each stage of codes: the warpgroups that multiply do not load them from L2.
// targets: sm_90a (wgmma exists on Hopper alone)
#include <cuda_fp8.h>

#include "wgmma.cuh"

// The product's copies and descriptors take two numbers for one bf16: ROW is 64 such pairs.

constexpr int BLOCK = 128;                 // numbers of a row that share a scale; of a weight, by as many outputs
constexpr int PIECE = 8;                   // numbers of x that a thread casts
constexpr int TILE_M = 256, TILE_N = 128;  // of the result, a block at a time
constexpr int CONSUMERS = 2, HALVES = TILE_M / 64 / CONSUMERS;  // warpgroups, and how many times 64 rows each has
constexpr int THREADS = (CONSUMERS + 1) * GROUP_THREADS;        // and one of which a thread copies
constexpr int STAGES = 4;

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  bf16 out[CONSUMERS][64 * ROW];
  float scales[STAGES][TILE_M];  // of the rows
  Barrier full[STAGES], empty[STAGES];
};

// Sixteen threads cast a block of 128 numbers of a row, with the least power of two with which it fits.
__global__ void cast(const bf16* __restrict__ x, uint2* __restrict__ codes, float* __restrict__ scales, int64_t pieces,
                     int rows, int k) {
  const int64_t piece = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= pieces) return;  // whole blocks of numbers, so all or none of their threads
  union {
    uint4 words;
    __nv_bfloat162 pairs[PIECE / 2];
  } from;
  from.words = reinterpret_cast<const uint4*>(x)[piece];
  float2 numbers[PIECE / 2];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < PIECE / 2; ++i) {
    numbers[i] = __bfloat1622float2(from.pairs[i]);
    largest = fmaxf(largest, fmaxf(fabsf(numbers[i].x), fabsf(numbers[i].y)));
  }
#pragma unroll
  for (int other = 1; other < BLOCK / PIECE; other *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(__activemask(), largest, other));
  }
  const float least = fmaxf(largest / 448, 0x1p-100f);  // the floor is for zeros
  const float scale = __int_as_float((__float_as_int(least) + 0x7FFFFF) & 0x7F800000);
  const float inverse = __int_as_float(0x7F000000 - __float_as_int(scale));  // as exact as a division, and quicker
  union {
    uint2 words;
    __nv_fp8x2_storage_t pairs[PIECE / 2];
  } to;
#pragma unroll
  for (int i = 0; i < PIECE / 2; ++i) {
    const float2 scaled = {numbers[i].x * inverse, numbers[i].y * inverse};
    to.pairs[i] = __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
  }
  codes[piece] = to.words;
  if (threadIdx.x % (BLOCK / PIECE) == 0) {
    const int64_t row = piece * PIECE / k, block = piece * PIECE % k / BLOCK;
    scales[block * rows + row] = scale;
  }
}

// One tile's row of 128 numbers: four products, each 32 numbers deep, the first of which begins the sums anew.
__device__ void multiply_row_fp8(float (&part)[TILE_N / 2], const bf16* a, const bf16* b) {
  const uint64_t rows = descriptor(a), columns = descriptor(b);
  hold(part);
  fence_products();
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) multiply_fp8(part, rows + 2 * k, columns + 2 * k, k > 0);
  commit_products();
  hold(part);
}

// Registers move from the warpgroup that copies to those that multiply.
template <int registers>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, const float* of_rows, int rows,
                        int top, int left, int blocks, uint32_t& turn) {
  for (int i = 0; i < blocks; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);  // in the first round there is nothing to wait for
    arrive_and_expect(&shared.full[stage], sizeof(shared.a[0]) + sizeof(shared.b[0]) + sizeof(shared.scales[0]));
    load_row(shared.scales[stage], of_rows + int64_t(i) * rows + top, sizeof(shared.scales[0]), &shared.full[stage]);
    load_box(shared.a[stage], &a, i * ROW, top, &shared.full[stage]);
    load_box(shared.b[stage], &b, i * ROW, left, &shared.full[stage]);
  }
}

// One tile: `turn` counts the stages that this thread has used, over all tiles. The warpgroups take no turns: while one
// adds its products up, those of the other run.
__device__ void consume(Shared& shared, float (&sum)[HALVES][TILE_N / 2], const float* of_column, int group, int blocks,
                        uint32_t& turn) {
  const int row = group * HALVES * 64 + threadIdx.x % GROUP_THREADS / 32 * 16 + threadIdx.x % 32 / 4;
  float of_block = __ldg(of_column);
#pragma unroll 4
  for (int i = 0; i < blocks; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    const float block_scale = of_block;
    of_block = __ldg(of_column + min(i + 1, blocks - 1));  // a block ahead: the products must not wait for it
    wait(&shared.full[stage], turn / STAGES % 2);
    float scale[HALVES][2];
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
#pragma unroll
      for (int j = 0; j < 2; ++j) scale[half][j] = shared.scales[stage][row + half * 64 + j * 8] * block_scale;
    }
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      float part[TILE_N / 2];  // begun by the first product, whatever is in it
      multiply_row_fp8(part, shared.a[stage] + (group * HALVES + half) * 64 * ROW, shared.b[stage]);
      finish_products(part);
      if (half == HALVES - 1 && threadIdx.x % 32 == 0) arrive(&shared.empty[stage]);
#pragma unroll
      for (int j = 0; j < TILE_N / 2; ++j) sum[half][j] += part[j] * scale[half][j / 2 % 2];
    }
  }
}

// Sums go through shared memory in boxes of 64 x 64, which TMA writes as whole lines.
__device__ void store_tile(Shared& shared, const CUtensorMap& out, const float (&sum)[TILE_N / 2], int group, int top,
                           int left, int m, int n) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int box = 0; box < TILE_N / ROW; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group]);
    if (thread == 0) wait_for_stores<0>();  // the box before has been read
    sync_group(1 + group);
#pragma unroll
    for (int j = 0; j < ROW / 16; ++j) {
      store_matrices(staged + swizzled(row, 2 * j + lane / 16), sum + ROW / 2 * box + 8 * j);
    }
    publish_tile();
    sync_group(1 + group);
    if (thread == 0) {
      if (top < m && left + box * ROW < n) store_box(&out, left + box * ROW, top, staged);
      commit_stores();
    }
  }
}

__global__ void __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap out, const float* __restrict__ a_scales,
            const float* __restrict__ b_scales, int m, int n, int blocks) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tiles_m = ceil_div(m, TILE_M), tiles = tiles_m * ceil_div(n, TILE_N);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], CONSUMERS * GROUP_THREADS / 32);  // a warp arrives once
    }
    publish_barriers();
  }
  __syncthreads();

  // Down all rows, then to the next outputs: a weight comes from memory once, and the activations stay in the L2 cache.
  const int group = group_of_thread();
  uint32_t turn = 0;
  if (group == CONSUMERS) {
    give_registers<40>();
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) {
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int top = tile % tiles_m * TILE_M, left = tile / tiles_m * TILE_N;
        produce(shared, a, b, a_scales, tiles_m * TILE_M, top, left, blocks, turn);
      }
    }
  } else {
    take_registers<232>();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const int top = tile % tiles_m * TILE_M, left = tile / tiles_m * TILE_N;
      float sum[HALVES][TILE_N / 2] = {};
      consume(shared, sum, b_scales + int64_t(left) / BLOCK * blocks, group, blocks, turn);
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        store_tile(shared, out, sum[half], group, top + (group * HALVES + half) * 64, left, m, n);
      }
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
}

// `x_scales` has a row for each block of 128 numbers, as long as the tiles' rows: 256 for each 256 or fewer rows of x.
extern "C" int linear(const __nv_bfloat16* x, const __nv_fp8_e4m3* codes, const float* by_block, __nv_bfloat16* out,
                      __nv_fp8_e4m3* x_codes, float* x_scales, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  if (k % BLOCK || n % BLOCK) return cudaErrorInvalidValue;
  CUtensorMap map_a, map_b, map_out;
  const auto* pairs_a = reinterpret_cast<const bf16*>(x_codes);
  const auto* pairs_b = reinterpret_cast<const bf16*>(codes);
  TRY(describe(&map_a, pairs_a, m, k / 2, TILE_M));
  TRY(describe(&map_b, pairs_b, n, k / 2, TILE_N));
  TRY(describe(&map_out, out, m, n, 64));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t pieces = m * k / PIECE, rows = ceil_div(m, TILE_M) * TILE_M;
  cast<<<ceil_div(pieces, 256), 256, 0, stream>>>(x, reinterpret_cast<uint2*>(x_codes), x_scales, pieces, int(rows),
                                                  int(k));
  TRY(cudaGetLastError());
  const int64_t tiles = ceil_div(m, TILE_M) * ceil_div(n, TILE_N), room = multiprocessors;
  product<<<tiles < room ? tiles : room, THREADS, BYTES, stream>>>(map_a, map_b, map_out, x_scales, by_block,
                                                                   int(m), int(n), int(k / BLOCK));
  return cudaGetLastError();
}
