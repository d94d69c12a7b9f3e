// targets: sm_90a (wgmma)
// The weight lies in the order of wgmma's fragments: a lane's next 32 codes are one load of 16 bytes, one lop3 makes
// a pair of them bf16, and every block reads one contiguous stretch of the whole.
#include "stream_k.cuh"
#include "wgmma.cuh"

constexpr int TILE = 256;                        // outputs that a block works on at a time
constexpr int GROUP = 128;                       // features that share a scale: a step
constexpr int PIECES = TILE * GROUP / 32;        // of 32 codes, 16 bytes, in a step
constexpr int ROW_PIECES = GROUP / 8;            // of 8 activations, 16 bytes, in a row of a step
constexpr uint32_t PAIR = 0x43004300;            // two bf16 of 128, whose last bit is worth 1

constexpr int ROWS = 16;                         // of x: a launch takes as many
constexpr int WARP_TILES = 4;                    // of 16 outputs
constexpr int THREADS = GROUP_THREADS;
constexpr int STAGES = 3;                        // 62 KB up to 16 rows: three blocks fit on a multiprocessor of sm_90

struct alignas(1024) Stage {
  bf16 x[ROWS * GROUP];  // two tiles of 64 features, as wgmma wants them
  uint4 codes[PIECES];
  bf16 scales[TILE];
};

using Sums = float[WARP_TILES][ROWS / 8][4];

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

// Codes i and i + 4 of a word, less 8, as bf16: four bits go to the end of a mantissa of seven, which makes 128 + code.
__device__ uint32_t pair_of(uint32_t word, int i) {
  uint32_t pair;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(pair) : "r"(word >> 4 * i), "n"(0x000F000F), "r"(PAIR));  // a & b | c
  const __nv_bfloat162 codes =
      __hsub2(reinterpret_cast<const __nv_bfloat162&>(pair), __float2bfloat162_rn(136.0f));
  return reinterpret_cast<const uint32_t&>(codes);
}

// Start copying what a step needs; outputs and rows that there are not are zeros.
__device__ void load(Stage& stage, const Problem& problem, const Cursor& at) {
  const uint4* const codes = problem.codes + int64_t(at.step) * PIECES + threadIdx.x;
#pragma unroll
  for (int i = 0; i < PIECES; i += THREADS) copy_async<16>(stage.codes + threadIdx.x + i, codes + i);
  if (threadIdx.x < TILE / 8) {
    const int output = at.tile * TILE + threadIdx.x * 8;
    const bool inside = output < problem.outputs;
    const bf16* from = problem.scales + at.group * problem.outputs + output;
    copy_async<16>(stage.scales + threadIdx.x * 8, inside ? from : problem.scales, inside ? 16 : 0);
  }
#pragma unroll
  for (int i = 0; i < ROWS * ROW_PIECES; i += THREADS) {
    const int row = (i + threadIdx.x) / ROW_PIECES, piece = threadIdx.x % ROW_PIECES;
    const bool inside = row < problem.rows;
    const bf16* from = problem.x + (row * problem.steps.groups + at.group) * GROUP + piece * 8;
    void* const to = reinterpret_cast<uint8_t*>(stage.x) + piece / 8 * (ROWS * ROW * 2) + swizzled(row, piece % 8);
    copy_async<16>(to, inside ? from : problem.x, inside ? 16 : 0);
  }
}

// sum[64 outputs, 16 rows] (+)= a b^T, by a warpgroup: a lane's fragment of 16 outputs x 16 features, and a tile of x.
__device__ void multiply_held(float (&sum)[ROWS / 2], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, "
      "add, 1, 1, 0;\n}"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}

// sum[outputs, rows] += scale (code - 8) x, over a group. While the tensor cores multiply a tile of outputs, the next
// one's codes are widened.
__device__ void multiply_group(Sums& sum, const Stage& stage) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint64_t of_x = descriptor(stage.x);
  uint32_t codes[2][8][4];
  float part[2][ROWS / 2];
  const auto add_scaled = [&](int m) {
    const bf16* const scales = stage.scales + (warp * WARP_TILES + m) * 16 + lane / 4;
    const float upper = __bfloat162float(scales[0]), lower = __bfloat162float(scales[8]);
    hold(part[m % 2]);
#pragma unroll
    for (int i = 0; i < ROWS / 2; ++i) sum[m][i / 4][i % 4] += (i % 4 < 2 ? upper : lower) * part[m % 2][i];
  };
#pragma unroll
  for (int m = 0; m < WARP_TILES; ++m) {
    const int tile = warp * WARP_TILES + m;
    const uint4 pieces[2] = {stage.codes[tile * 32 + lane], stage.codes[(TILE / 16 + tile) * 32 + lane]};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const uint4& piece = pieces[k / 4];
      const uint32_t word = k % 4 == 0 ? piece.x : k % 4 == 1 ? piece.y : k % 4 == 2 ? piece.z : piece.w;
#pragma unroll
      for (int i = 0; i < 4; ++i) codes[m % 2][k][i] = pair_of(word, i);
    }
    hold(part[m % 2]);
    fence_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) {  // a tile of x is 64 features wide: four products
      multiply_held(part[m % 2], codes[m % 2][k], of_x + k / 4 * (ROWS * ROW * 2 / 16) + k % 4 * 2, k > 0);
    }
    commit_products();
    hold(part[m % 2]);
    if (m > 0) {
      wait_for_products<1>();
      add_scaled(m - 1);
    }
  }
  wait_for_products<0>();
  add_scaled(WARP_TILES - 1);
}

__global__ void __launch_bounds__(THREADS, 3) linear(const Problem problem) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Stage* const ring = reinterpret_cast<Stage*>(memory);
  Sums sum;
  clear(sum);
  walk<STAGES>(
      ring, problem.steps, [&](Stage& stage, const Cursor& at) { load(stage, problem, at); }, [] { publish_tile(); },
      [&](const Stage& stage) { multiply_group(sum, stage); },
      [&](int tile, bool whole) {
        if (whole || add_up<THREADS>(sum, problem.steps, problem.partial, problem.arrived, tile)) {
          store(sum, problem.out, problem.rows, problem.outputs, tile * TILE);
        }
        clear(sum);
      });
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
  constexpr int BYTES = STAGES * sizeof(Stage);
  TRY(cudaFuncSetAttribute(linear, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  for (int64_t first = 0; first < rows; first += ROWS) {
    const Problem problem{reinterpret_cast<const uint4*>(codes), scales, x + first * features, out + first * outputs,
                          reinterpret_cast<float4*>(partial), arrived, int(min(rows - first, int64_t(ROWS))),
                          int(outputs), {int(features / GROUP), steps / grid, steps % grid}};
    linear<<<grid, THREADS, BYTES, stream>>>(problem);
    TRY(cudaGetLastError());
  }
  return cudaSuccess;
}
