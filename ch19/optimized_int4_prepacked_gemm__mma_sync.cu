// The weight lies in the order of mma.sync's fragments: a lane's next 32 codes are one load of 16 bytes, one lop3 makes
// a pair of them bf16, and every block reads one contiguous stretch of the whole.
#include "ampere.cuh"

constexpr int TILE = 256;                        // outputs that a block works on at a time
constexpr int GROUP = 128;                       // features that share a scale: a step
constexpr int PIECES = TILE * GROUP / 32;        // of 32 codes, 16 bytes, in a step
constexpr int HALF = GROUP / 2;                  // features of a lane's piece: four products
constexpr int ROW_PIECES = GROUP / 8;            // of 8 activations, 16 bytes, in a row of a step
constexpr uint32_t PAIR = 0x43004300;            // two bf16 of 128, whose last bit is worth 1
constexpr uint32_t OFFSET = 0xC308C308;          // two bf16 of -136: 128, and the 8 in the middle of the codes

template <int ROWS>
constexpr int WARP_TILES = ROWS <= 32 ? 4 : 2;  // of 16 outputs: the sums of more would not fit
template <int ROWS>
constexpr int THREADS = TILE / 16 / WARP_TILES<ROWS> * 32;
constexpr int STAGES = 3;                        // 62 KB up to 16 rows: three blocks fit on a multiprocessor of sm_90

template <int ROWS>  // a multiple of 8
struct Stage {
  uint4 codes[PIECES];
  bf16 scales[TILE];
  bf16 x[ROWS * GROUP];
};

template <int ROWS>
using Sums = float[WARP_TILES<ROWS>][ROWS / 8][4];

struct Problem {
  const uint4* codes;  // [tile, group, half, 16 outputs, lane], as `packed` in the Python file has it
  const bf16* scales;  // [groups, outputs]
  const bf16* x;       // [rows, features]
  bf16* out;           // [rows, outputs]
  float4* partial;     // [blocks, 2, sums of a tile]
  int32_t* arrived;    // [tiles], zero between launches
  int rows, outputs, groups;
  int share, longer;   // steps of a block, and how many blocks, the first ones, have one more
};

// Where a block is in the steps of all tiles. Counted on, as a division in every step would show.
struct Cursor {
  int step, tile, group;
  __device__ Cursor(int step, int groups) : step(step), tile(step / groups), group(step % groups) {}
  __device__ void advance(int groups) {
    ++step;
    if (++group == groups) {
      group = 0;
      ++tile;
    }
  }
};

// Codes i and i + 4 of a word, as bf16 of 128 + code: four bits go to the end of a mantissa of seven. One lop3.
__device__ uint32_t pair_of(uint32_t word, int i) {
  uint32_t pair;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(pair) : "r"(word >> 4 * i), "n"(0x000F000F), "r"(PAIR));  // a & b | c
  return pair;
}

// Where a piece of a row of x stands. Eight rows of one piece, which ldmatrix reads at once, lie in different banks.
__device__ int place(int row, int piece) { return row * GROUP + (piece ^ row % 8) * 8; }

// Start copying what a step needs; outputs and rows that there are not are zeros.
template <int ROWS>
__device__ void load(Stage<ROWS>& stage, const Problem& problem, const Cursor& at) {
  const uint4* const codes = problem.codes + int64_t(at.step) * PIECES + threadIdx.x;
#pragma unroll
  for (int i = 0; i < PIECES; i += THREADS<ROWS>) copy_async<16>(stage.codes + threadIdx.x + i, codes + i);
  if (threadIdx.x < TILE / 8) {
    const int output = at.tile * TILE + threadIdx.x * 8;
    const bool inside = output < problem.outputs;
    const bf16* from = problem.scales + at.group * problem.outputs + output;
    copy_async<16>(stage.scales + threadIdx.x * 8, inside ? from : problem.scales, inside ? 16 : 0);
  }
#pragma unroll
  for (int i = 0; i < ROWS * ROW_PIECES; i += THREADS<ROWS>) {
    const int row = (i + threadIdx.x) / ROW_PIECES, piece = threadIdx.x % ROW_PIECES;
    const bool inside = row < problem.rows;
    const bf16* from = problem.x + (row * problem.groups + at.group) * GROUP + piece * 8;
    copy_async<16>(stage.x + place(row, piece), inside ? from : problem.x, inside ? 16 : 0);
  }
}

// sum[outputs, rows] += scale (code - 8) x, over a group. The tensor cores take 128 + code, as `pair_of` makes it, and
// the surplus of 136 is the same for all outputs: sums begin with -136 times the sum of x, one product for all tiles.
template <int ROWS>
__device__ void multiply_group(Sums<ROWS>& sum, const Stage<ROWS>& stage) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll(ROWS <= 16 ? 2 : 1)
  for (int half = 0; half < 2; ++half) {
    uint32_t of_x[ROWS / 8][8];  // two for each product
    float start[ROWS / 8][4] = {};
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        load_matrices(of_x[n] + i, stage.x + place(n * 8 + lane % 8, half * (HALF / 8) + i + lane / 8));
      }
      const uint32_t offsets[4] = {OFFSET, OFFSET, OFFSET, OFFSET};
#pragma unroll
      for (int i = 0; i < 8; i += 2) multiply(start[n], offsets, of_x[n] + i);
    }
#pragma unroll
    for (int m = 0; m < WARP_TILES<ROWS>; ++m) {
      const int tile = warp * WARP_TILES<ROWS> + m;
      const uint4 piece = stage.codes[(half * (TILE / 16) + tile) * 32 + lane];
      const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
      float part[ROWS / 8][4];
#pragma unroll
      for (int n = 0; n < ROWS / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) part[n][i] = start[n][i];
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t a[4] = {pair_of(words[k], 0), pair_of(words[k], 1), pair_of(words[k], 2), pair_of(words[k], 3)};
#pragma unroll
        for (int n = 0; n < ROWS / 8; ++n) multiply(part[n], a, of_x[n] + 2 * k);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // two outputs a lane, eight apart, and two rows
        const float scale = __bfloat162float(stage.scales[tile * 16 + lane / 4 + i / 2 * 8]);
#pragma unroll
        for (int n = 0; n < ROWS / 8; ++n) sum[m][n][i] += scale * part[n][i];
      }
    }
  }
}

template <int ROWS>
__device__ void store(const Sums<ROWS>& sum, const Problem& problem, int tile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int m = 0; m < WARP_TILES<ROWS>; ++m) {
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int output = tile * TILE + (warp * WARP_TILES<ROWS> + m) * 16 + lane / 4 + i / 2 * 8;
        const int row = n * 8 + lane % 4 * 2 + i % 2;
        if (output < problem.outputs && row < problem.rows) {
          problem.out[int64_t(row) * problem.outputs + output] = __float2bfloat16(sum[m][n][i]);
        }
      }
    }
  }
}

template <int ROWS>
__device__ void clear(Sums<ROWS>& sum) {
#pragma unroll
  for (int i = 0; i < WARP_TILES<ROWS> * ROWS / 2; ++i) sum[i / (ROWS / 2)][i / 4 % (ROWS / 8)][i % 4] = 0.0f;
}

// The first of all steps that is a block's: each has as many as any other, but for one.
__device__ int first_step(const Problem& problem, int block) {
  return block * problem.share + min(block, problem.longer);
}

// A tile whose features several blocks share: each leaves its sums, and the last to come adds all up in their order.
// A block shares at most two tiles, its first and its last. Returns whether this block is the last to come.
template <int ROWS>
__device__ bool add_up(Sums<ROWS>& sum, const Problem& problem, int tile) {
  constexpr int PARTS = WARP_TILES<ROWS> * (ROWS / 8);
  const int first = tile * problem.groups, last = first + problem.groups - 1;
  const auto slot = [&](int block) {
    const bool begun_before = first_step(problem, block) < first;
    return problem.partial + int64_t(2 * block + begun_before) * PARTS * THREADS<ROWS> + threadIdx.x;
  };
  float4* const own = slot(blockIdx.x);
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const float(&part)[4] = sum[i / (ROWS / 8)][i % (ROWS / 8)];
    own[i * THREADS<ROWS>] = {part[0], part[1], part[2], part[3]};
  }
  __threadfence();
  __syncthreads();

  int from = blockIdx.x, to = blockIdx.x;
  while (first_step(problem, from) > first) --from;
  while (first_step(problem, to + 1) <= last) ++to;
  __shared__ bool is_last;
  if (threadIdx.x == 0) is_last = atomicAdd(problem.arrived + tile, 1) == to - from;
  __syncthreads();
  if (!is_last) return false;

  __threadfence();
  if (threadIdx.x == 0) problem.arrived[tile] = 0;  // for the next launch
  clear<ROWS>(sum);
  for (int block = from; block <= to; ++block) {
    const float4* const parts = slot(block);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const float4 part = __ldcg(parts + i * THREADS<ROWS>);  // written by another multiprocessor
      float(&total)[4] = sum[i / (ROWS / 8)][i % (ROWS / 8)];
      total[0] += part.x;
      total[1] += part.y;
      total[2] += part.z;
      total[3] += part.w;
    }
  }
  return true;
}

template <int ROWS>
__global__ void __launch_bounds__(THREADS<ROWS>, ROWS <= 16 ? 3 : ROWS <= 32 ? 2 : 1) linear(const Problem problem) {
  extern __shared__ __align__(128) uint8_t memory[];
  Stage<ROWS>* const ring = reinterpret_cast<Stage<ROWS>*>(memory);
  const int begin = first_step(problem, blockIdx.x), end = first_step(problem, blockIdx.x + 1);
  Cursor ahead(begin, problem.groups);
  int filled = 0;
  const auto load_next = [&] {  // a group for each stage, empty at the end, so that they can be counted
    if (ahead.step < end) load(ring[filled], problem, ahead);
    commit_copies();
    ahead.advance(problem.groups);
    filled = filled + 1 == STAGES ? 0 : filled + 1;
  };
  for (int i = 0; i < STAGES - 1; ++i) load_next();

  Sums<ROWS> sum;
  clear<ROWS>(sum);
  int stage = 0;
  for (Cursor at(begin, problem.groups); at.step < end; at.advance(problem.groups)) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();  // this stage is here, and all warps are done with the one before, which is filled next
    load_next();
    multiply_group<ROWS>(sum, ring[stage]);
    stage = stage + 1 == STAGES ? 0 : stage + 1;

    const bool tile_ends = at.group == problem.groups - 1;
    if (tile_ends || at.step == end - 1) {
      const bool whole = tile_ends && begin <= at.tile * problem.groups;
      if (whole || add_up<ROWS>(sum, problem, at.tile)) store<ROWS>(sum, problem, at.tile);
      clear<ROWS>(sum);
    }
  }
}

template <int ROWS>
int launch(const Problem& problem, int blocks, cudaStream_t stream) {
  constexpr int BYTES = STAGES * sizeof(Stage<ROWS>);
  TRY(cudaFuncSetAttribute(linear<ROWS>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  linear<ROWS><<<blocks, THREADS<ROWS>, BYTES, stream>>>(problem);
  return cudaGetLastError();
}

// `codes` is in the order of `packed`; `partial` has 2 x 64 x 256 numbers for each of `blocks` blocks.
extern "C" int int4_linear(const uint8_t* codes, const __nv_bfloat16* scales, const __nv_bfloat16* x,
                           __nv_bfloat16* out, float* partial, int32_t* arrived, int64_t rows, int64_t outputs,
                           int64_t features, int64_t blocks, cudaStream_t stream) {
  if (rows < 1 || rows > 64 || outputs < 1 || outputs % 8 || features < GROUP || features % GROUP || blocks < 1 ||
      max(outputs, rows * GROUP) * (features / GROUP) > INT32_MAX) {
    return cudaErrorInvalidValue;
  }
  const int steps = ceil_div(outputs, TILE) * (features / GROUP), grid = min(blocks, int64_t(steps));
  const Problem problem{reinterpret_cast<const uint4*>(codes), scales, x, out, reinterpret_cast<float4*>(partial),
                        arrived, int(rows), int(outputs), int(features / GROUP), steps / grid, steps % grid};
  if (rows <= 8) return launch<8>(problem, grid, stream);
  if (rows <= 16) return launch<16>(problem, grid, stream);
  if (rows <= 32) return launch<32>(problem, grid, stream);
  return launch<64>(problem, grid, stream);
}
