// The weight lies in the order of mma.sync's fragments: a lane's next 32 codes are one load of 16 bytes, one lop3 makes
// a pair of them bf16, and every block reads one contiguous stretch of the whole.
#include "stream_k.cuh"

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
  int rows, outputs;
  Shares steps;
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
    const bf16* from = problem.x + (row * problem.steps.groups + at.group) * GROUP + piece * 8;
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
__global__ void __launch_bounds__(THREADS<ROWS>, ROWS <= 16 ? 3 : ROWS <= 32 ? 2 : 1) linear(const Problem problem) {
  extern __shared__ __align__(128) uint8_t memory[];
  Stage<ROWS>* const ring = reinterpret_cast<Stage<ROWS>*>(memory);
  Sums<ROWS> sum;
  clear(sum);
  walk<STAGES>(
      ring, problem.steps, [&](Stage<ROWS>& stage, const Cursor& at) { load(stage, problem, at); }, [] {},
      [&](const Stage<ROWS>& stage) { multiply_group<ROWS>(sum, stage); },
      [&](int tile, bool whole) {
        if (whole || add_up<THREADS<ROWS>>(sum, problem.steps, problem.partial, problem.arrived, tile)) {
          store(sum, problem.out, problem.rows, problem.outputs, tile * TILE);
        }
        clear(sum);
      });
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
                        arrived, int(rows), int(outputs), {int(features / GROUP), steps / grid, steps % grid}};
  if (rows <= 8) return launch<8>(problem, grid, stream);
  if (rows <= 16) return launch<16>(problem, grid, stream);
  if (rows <= 32) return launch<32>(problem, grid, stream);
  return launch<64>(problem, grid, stream);
}
