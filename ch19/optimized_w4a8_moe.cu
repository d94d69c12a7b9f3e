// out = x weights^T of each expert: e2m1 codes become e4m3 in registers, wgmma's left operand; rows are its columns.
// targets: sm_90a (wgmma exists on Hopper alone)
#include <cuda_fp8.h>

#include "wgmma.cuh"

constexpr int ROWS = 128, OUTPUTS = 256;   // of a tile: 128 outputs a warpgroup, in two halves
constexpr int DEPTH = 128;                 // features of a step: a row of e4m3 has 128 bytes, ROW pairs
constexpr int CONSUMERS = 2, HALVES = 2;
constexpr int THREADS = (CONSUMERS + 1) * GROUP_THREADS;  // and a warpgroup that copies
constexpr int STAGES = 5;
constexpr int CASTERS = 8;                 // warps of a block that cast a row each

struct Record {  // of 256 outputs x 128 features, in the order of `packed`
  uint4 codes[OUTPUTS / 64][2][GROUP_THREADS];
  uint32_t exponents[OUTPUTS];  // of e4m3, for a code of 1: four groups of 32 features each
};

struct Shared {
  bf16 x[STAGES][ROWS * ROW];
  bf16 out[CONSUMERS][ROWS * ROW];
  Record weights[STAGES];
  Barrier full[STAGES], empty[STAGES];
};

struct Problem {
  const int32_t* ends;  // of each expert's rows
  const Record* weights;
  const float *by_row, *by_output;
  bf16* out;
  int experts, outputs, across, steps;  // across: tiles of an expert's outputs
};

// A tile's expert and place. Tiles go down an expert's rows, then to its next outputs: they share the weights.
struct Tile {
  int expert = 0, before = 0, begin = 0, end = 0, top = 0, left = 0;
  __device__ bool find(const Problem& problem, int number) {
    for (; expert < problem.experts; ++expert) {
      end = problem.ends[expert];
      const int down = ceil_div(end - begin, ROWS);
      if (number < before + down * problem.across) {
        top = begin + (number - before) % down * ROWS, left = (number - before) / down * OUTPUTS;
        return true;
      }
      before += down * problem.across, begin = end;
    }
    return false;
  }
};

// The e4m3 numbers of e2m1's eight sizes, 0 to 6, if a code of 1 has the exponent of group `i` of four.
struct Sizes {
  uint32_t low, high;
  __device__ Sizes(uint32_t four, int i) {
    const uint32_t exponent = __byte_perm(four, 0, 0x4440 | i);
    low = exponent * 0x08080800 + 0x03FFF800, high = exponent * 0x08080808 + 0x14100C08;
  }
};

// A word's eight codes: three bits of each choose one of the sizes, and its sign is the byte's last bit.
__device__ void widen(uint32_t& left, uint32_t& right, uint32_t word, const Sizes& sizes) {
  const uint32_t chosen = word & 0x77777777;
  left = __byte_perm(sizes.low, sizes.high, chosen) | word & 0x80808080;
  right = __byte_perm(sizes.low, sizes.high, chosen >> 16) | word << 4 & 0x80808080;
}

__device__ void produce(Shared& shared, const CUtensorMap& x, const Problem& problem, const Tile& tile, uint32_t& turn) {
  const Record* const from = problem.weights + (int64_t(tile.expert) * problem.across + tile.left / OUTPUTS) * problem.steps;
  for (int i = 0; i < problem.steps; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.x[0]) + sizeof(Record));
    load_row(&shared.weights[stage], from + i, sizeof(Record), &shared.full[stage]);
    load_box(shared.x[stage], &x, i * ROW, tile.top, &shared.full[stage]);
  }
}

// A step in units of 64 outputs: one is widened while the last one is multiplied. A step's stage is given back in the
// next one, when its last products have ended.
__device__ void consume(Shared& shared, float (&sum)[HALVES][ROWS / 2], int group, int steps, uint32_t& turn) {
  const int thread = threadIdx.x % GROUP_THREADS, row = thread / 32 * 16 + thread % 32 / 4;
  uint32_t wide[HALVES][4][4];
  for (int i = 0; i < steps; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    const Record& weights = shared.weights[stage];
    wait(&shared.full[stage], turn / STAGES % 2);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int block = group * HALVES + half;
      const uint32_t upper = weights.exponents[block * 64 + row], lower = weights.exponents[block * 64 + row + 8];
      const uint4 codes[2] = {weights.codes[block][0][thread], weights.codes[block][1][thread]};
      const uint32_t words[4][2] = {
          {codes[0].x, codes[0].y}, {codes[0].z, codes[0].w}, {codes[1].x, codes[1].y}, {codes[1].z, codes[1].w}};
      wait_for_products<1>();
      if (half == 1 && i > 0 && threadIdx.x % 32 == 0) arrive(&shared.empty[(turn - 1) % STAGES]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        widen(wide[half][k][0], wide[half][k][2], words[k][0], Sizes(upper, k));
        widen(wide[half][k][1], wide[half][k][3], words[k][1], Sizes(lower, k));
      }
      const uint64_t rows = descriptor(shared.x[stage]);
      hold(sum[half]);
      fence_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_held_fp8(sum[half], wide[half][k], rows + 2 * k);
      commit_products();
      hold(sum[half]);
    }
  }
#pragma unroll
  for (int half = 0; half < HALVES; ++half) finish_products(sum[half]);
  if (threadIdx.x % 32 == 0) arrive(&shared.empty[(turn - 1) % STAGES]);
}

// Sums lie by outputs, and rows of `out` run along them: they are turned over in shared memory, 64 outputs at a time.
// Factors are powers of two, so that it does not matter when numbers are rounded.
__device__ void store_tile(uint8_t* staged, float (&sum)[HALVES][ROWS / 2], const Problem& problem,
                           const Tile& tile, int group) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32;
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    const float* const by_output = problem.by_output + int64_t(tile.expert) * problem.across * OUTPUTS + tile.left +
                                   (group * HALVES + half) * 64 + thread / 32 * 16 + lane / 4;
    const float upper = by_output[0], lower = by_output[8];
#pragma unroll
    for (int i = 0; i < ROWS / 2; ++i) sum[half][i] *= i / 2 % 2 ? lower : upper;
    sync_group(1 + group);
#pragma unroll
    for (int j = 0; j < ROWS / 8; j += 2) {
      store_matrices_turned(staged + swizzled((j + lane / 16) * 8 + lane % 8, thread / 32 * 2 + lane / 8 % 2),
                            sum[half] + 4 * j);
    }
    sync_group(1 + group);
#pragma unroll
    for (int i = thread; i < ROWS * 8; i += GROUP_THREADS) {
      const int row = tile.top + i / 8, output = tile.left + (group * HALVES + half) * 64 + i % 8 * 8;
      if (row < tile.end && output < problem.outputs) {
        uint4 eight = *reinterpret_cast<const uint4*>(staged + swizzled(i / 8, i % 8));
        const __nv_bfloat162 factor = __float2bfloat162_rn(problem.by_row[row]);
#pragma unroll
        for (int j = 0; j < 4; ++j) reinterpret_cast<__nv_bfloat162*>(&eight)[j] *= factor;
        *reinterpret_cast<uint4*>(problem.out + int64_t(row) * problem.outputs + output) = eight;
      }
    }
  }
}

__global__ void __launch_bounds__(THREADS, 1) product(const __grid_constant__ CUtensorMap x, const Problem problem) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], CONSUMERS * GROUP_THREADS / 32);  // a warp arrives once
    }
    publish_barriers();
  }
  __syncthreads();

  const int group = group_of_thread();
  uint32_t turn = 0;
  Tile tile;
  if (group == CONSUMERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x != CONSUMERS * GROUP_THREADS) return;
    for (int number = blockIdx.x; tile.find(problem, number); number += gridDim.x) {
      produce(shared, x, problem, tile, turn);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    for (int number = blockIdx.x; tile.find(problem, number); number += gridDim.x) {
      float sum[HALVES][ROWS / 2] = {};
      consume(shared, sum, group, problem.steps, turn);
      store_tile(reinterpret_cast<uint8_t*>(shared.out[group]), sum, problem, tile, group);
    }
  }
}

// A warp casts a row to e4m3: with the least power of two as its scale with which the row fits.
__global__ void __launch_bounds__(CASTERS * 32)
    cast_rows(const bf16* __restrict__ x, uint2* __restrict__ cast, float* __restrict__ by_row, int rows, int eights) {
  const int64_t row = int64_t(blockIdx.x) * CASTERS + threadIdx.x / 32;
  if (row >= rows) return;
  const uint4* const from = reinterpret_cast<const uint4*>(x) + row * eights;
  __nv_bfloat162 most = __float2bfloat162_rn(0.0f);
  for (int i = threadIdx.x % 32; i < eights; i += 32) {
    const uint4 eight = from[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) most = __hmax2(most, __habs2(reinterpret_cast<const __nv_bfloat162*>(&eight)[j]));
  }
  float largest = fmaxf(__low2float(most), __high2float(most));
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
  const float ratio = fmaxf(largest / 448.0f, 0x1p-100f);
  const float scale = __int_as_float(__float_as_int(ratio) + 0x7FFFFF & 0x7F800000), factor = 1.0f / scale;
  if (threadIdx.x % 32 == 0) by_row[row] = scale;
  for (int i = threadIdx.x % 32; i < eights; i += 32) {
    const uint4 eight = from[i];  // from the L1 cache
    uint2 codes;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(&eight)[j]);
      reinterpret_cast<__nv_fp8x2_storage_t*>(&codes)[j] =
          __nv_cvt_float2_to_fp8x2({pair.x * factor, pair.y * factor}, __NV_SATFINITE, __NV_E4M3);
    }
    cast[row * eights + i] = codes;
  }
}

// `records` and `by_output` have the order of `packed` in the Python file.
extern "C" int multiply(const __nv_bfloat16* x, __nv_fp8_e4m3* cast, float* by_row, const int32_t* ends,
                        const int32_t* records, const float* by_output, __nv_bfloat16* out, int64_t rows,
                        int64_t experts, int64_t width, int64_t outputs, cudaStream_t stream) {
  if (width % 32 || outputs % 8) return cudaErrorInvalidValue;
  const Problem problem{ends, reinterpret_cast<const Record*>(records), by_row, by_output, out, int(experts),
                        int(outputs), int(ceil_div(outputs, OUTPUTS)), int(ceil_div(width, DEPTH))};
  cast_rows<<<ceil_div(rows, CASTERS), CASTERS * 32, 0, stream>>>(x, reinterpret_cast<uint2*>(cast), by_row, rows,
                                                                   width / 8);
  TRY(cudaGetLastError());
  CUtensorMap map_x;
  TRY(describe(&map_x, reinterpret_cast<const bf16*>(cast), rows, width / 2, ROWS));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  product<<<multiprocessors, THREADS, BYTES, stream>>>(map_x, problem);
  return cudaGetLastError();
}
