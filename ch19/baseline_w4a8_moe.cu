// out = x weights^T of each expert: e2m1 codes become bf16 in registers, wgmma's left operand; rows are its columns.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int ROWS = 128, OUTPUTS = 256;   // of a tile: 128 outputs a warpgroup, in two halves
constexpr int DEPTH = 128, BOXES = 2;      // features of a step, and boxes of 64 of them
constexpr int CONSUMERS = 2, HALVES = 2;
constexpr int THREADS = (CONSUMERS + 1) * GROUP_THREADS;  // and a warpgroup that copies
constexpr int STAGES = 3;

struct Record {  // of 256 outputs x 128 features, in the order of `packed`
  uint4 codes[OUTPUTS / 64][2][GROUP_THREADS];
  uint32_t exponents[OUTPUTS];  // four groups of 32 features each
};

struct Shared {
  bf16 x[STAGES][BOXES][ROWS * ROW];
  bf16 out[CONSUMERS][ROWS * ROW];
  Record weights[STAGES];
  Barrier full[STAGES], empty[STAGES];
};

struct Problem {
  const int32_t* ends;  // of each expert's rows
  const Record* weights;
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

// Four pairs of codes as bf16 times 2^-126: the three bits end the exponent and begin the fraction.
__device__ void widen(uint32_t (&wide)[4], uint32_t word, __nv_bfloat162 upper, __nv_bfloat162 lower) {
  const uint32_t pairs[4] = {word & 0x81C081C0, word << 3 & 0x81C081C0, word << 1 & 0x80008000 | word << 6 & 0x01C001C0,
                             word << 2 & 0x80008000 | word >> 3 & 0x01C001C0};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto scaled = __hmul2(reinterpret_cast<const __nv_bfloat162&>(pairs[i]), i % 2 ? lower : upper);
    wide[i] = reinterpret_cast<const uint32_t&>(scaled);
  }
}

// 2^126 times the scale of group `i` of four, twice: 126 + its exponent.
__device__ __nv_bfloat162 scale_of(uint32_t four, int i) {
  const uint32_t scale = (__byte_perm(four, 0, 0x4040 | 0x0101 * i) + 0x007E007E) << 7;
  return reinterpret_cast<const __nv_bfloat162&>(scale);
}

__device__ void produce(Shared& shared, const CUtensorMap& x, const Problem& problem, const Tile& tile, uint32_t& turn) {
  const Record* const from = problem.weights + (int64_t(tile.expert) * problem.across + tile.left / OUTPUTS) * problem.steps;
  for (int i = 0; i < problem.steps; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.x[0]) + sizeof(Record));
    load_row(&shared.weights[stage], from + i, sizeof(Record), &shared.full[stage]);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      load_box(shared.x[stage][box], &x, (i * BOXES + box) * ROW, tile.top, &shared.full[stage]);
    }
  }
}

// A step in units of 64 outputs x 64 features: one is widened while the last one is multiplied. A step's stage is given
// back in the next one, when its last products have ended.
__device__ void consume(Shared& shared, float (&sum)[HALVES][ROWS / 2], int group, int steps, uint32_t& turn) {
  const int thread = threadIdx.x % GROUP_THREADS, row = thread / 32 * 16 + thread % 32 / 4;
  uint32_t wide[2][4][4];
  for (int i = 0; i < steps; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    const Record& weights = shared.weights[stage];
    wait(&shared.full[stage], turn / STAGES % 2);
#pragma unroll
    for (int unit = 0; unit < 2 * HALVES; ++unit) {
      const int half = unit / 2, box = unit % 2, block = group * HALVES + half;
      const uint32_t upper = weights.exponents[block * 64 + row], lower = weights.exponents[block * 64 + row + 8];
      const uint4 codes = weights.codes[block][box][thread];
      const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
      wait_for_products<1>();
      if (unit == 1 && i > 0 && threadIdx.x % 32 == 0) arrive(&shared.empty[(turn - 1) % STAGES]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int of = box * 2 + k / 2;
        widen(wide[unit % 2][k], words[k], scale_of(upper, of), scale_of(lower, of));
      }
      const uint64_t rows = descriptor(shared.x[stage][box]);
      hold(sum[half]);
      fence_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_held_rows(sum[half], wide[unit % 2][k], rows + 2 * k);
      commit_products();
      hold(sum[half]);
    }
  }
#pragma unroll
  for (int half = 0; half < HALVES; ++half) finish_products(sum[half]);
  if (threadIdx.x % 32 == 0) arrive(&shared.empty[(turn - 1) % STAGES]);
}

// Sums lie by outputs, and rows of `out` run along them: they are turned over in shared memory, 64 outputs at a time.
__device__ void store_tile(uint8_t* staged, const float (&sum)[HALVES][ROWS / 2], const Problem& problem,
                           const Tile& tile, int group) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32;
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
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
        *reinterpret_cast<uint4*>(problem.out + int64_t(row) * problem.outputs + output) =
            *reinterpret_cast<const uint4*>(staged + swizzled(i / 8, i % 8));
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

// `records` has the order of `packed` in the Python file; exponents of E8M0 are at most 128.
extern "C" int multiply(const __nv_bfloat16* x, const int32_t* ends, const int32_t* records, __nv_bfloat16* out,
                        int64_t rows, int64_t experts, int64_t width, int64_t outputs, cudaStream_t stream) {
  if (width % 32 || outputs % 8) return cudaErrorInvalidValue;
  const Problem problem{ends, reinterpret_cast<const Record*>(records), out, int(experts), int(outputs),
                        int(ceil_div(outputs, OUTPUTS)), int(ceil_div(width, DEPTH))};
  CUtensorMap map_x;
  TRY(describe(&map_x, x, rows, width, ROWS));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  product<<<multiprocessors, THREADS, BYTES, stream>>>(map_x, problem);
  return cudaGetLastError();
}
