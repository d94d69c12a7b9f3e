// Eight sweeps of a 5-point stencil in one pass over the grid.
// Blocks have as many rows as it takes for all of them to have a place at once: no wave is left half empty, and fewer
// rows are computed twice. Seven rows are on their way to shared memory while one is worked on.
//
// A lane has four neighbouring columns, a warp 128. The warp reads a row at a time. Of each sweep it keeps the two newest
// rows, so the third gives the row above it of the next sweep; the eighth sweep's row goes to memory. Neighbours in a row
// come from the next lanes. What lies outside the warp's columns is unknown, so each sweep makes one more column wrong at
// both sides: after eight, two lanes of each side. They are computed by the next warp, and eight rows at both ends too.
#include "ampere.cuh"

constexpr int SWEEPS = 8, WIDTH = 4, LEAST = 64, WARPS = 4, SLOTS = 8;
constexpr float BACK = 0x1p-24f;  // 8 to the power of -SWEEPS
constexpr int USEFUL = 32 * WIDTH - 2 * SWEEPS;  // columns of a warp that are right at the end

struct Row {
  float value[WIDTH];
};

// Eight times the next value: powers of two are exact, and one at the end in place of one in each sweep saves a fifth of
// the arithmetic. What comes in must be below 2^100, so that eight sweeps do not overflow.
__device__ Row relax(const Row& above, const Row& here, const Row& below) {
  const float left = __shfl_up_sync(~0u, here.value[WIDTH - 1], 1), right = __shfl_down_sync(~0u, here.value[0], 1);
  Row next;
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    const float before = i > 0 ? here.value[i - 1] : left, after = i + 1 < WIDTH ? here.value[i + 1] : right;
    const float around = (above.value[i] + below.value[i]) + (before + after);
    next.value[i] = fmaf(4.0f, here.value[i], around);
  }
  return next;
}

// `edge`: some of these points are outside the grid, where every sweep leaves zero.
template <bool edge>
__device__ void walk(float4 (&ring)[SLOTS][32 * WARPS], const float* before, float* after, int rows, int columns,
                     int height, int first_row, int column) {
  const int end = min(height, rows - first_row) + 2 * SWEEPS;
  const int lane = threadIdx.x % 32, margin = SWEEPS / WIDTH;
  const bool inside = column >= 0 && column < columns, own = inside && lane >= margin && lane < 32 - margin;
  Row above[SWEEPS] = {}, here[SWEEPS] = {};
  const float* from = before + int64_t(first_row - SWEEPS) * columns + column;
  const auto start_copy = [&](int step) {  // a lane reads what it has copied itself, so no barrier is needed
    const int row = first_row - SWEEPS + step;
    const bool there = inside && row >= 0 && row < rows;
    copy_async<16>(&ring[step % SLOTS][threadIdx.x], there ? from : before, there ? 16 : 0);
    commit_copies();
    from += columns;
  };
  for (int step = 0; step < SLOTS - 1; ++step) start_copy(step);
#pragma unroll 3
  for (int step = 0; step < end; ++step) {
    const int row = first_row - SWEEPS + step;
    wait_for_copies<SLOTS - 2>();
    const float4 four = ring[step % SLOTS][threadIdx.x];
    Row newest = {four.x, four.y, four.z, four.w};
    start_copy(step + SLOTS - 1);  // to the place of the row before, which is used up
#pragma unroll
    for (int sweep = 0; sweep < SWEEPS; ++sweep) {
      Row next = relax(above[sweep], here[sweep], newest);
      above[sweep] = here[sweep], here[sweep] = newest;
      const int place = row - sweep - 1;
      if (edge && (!inside || place < 0 || place >= rows)) next = {};
      newest = next;
    }
    const int done = row - SWEEPS;
    if (own && done >= first_row && done < rows)
      *reinterpret_cast<float4*>(after + int64_t(done) * columns + column) =
          make_float4(BACK * newest.value[0], BACK * newest.value[1], BACK * newest.value[2], BACK * newest.value[3]);
  }
}

__global__ void __launch_bounds__(32 * WARPS, 4)
    sweep_eight(const float* __restrict__ before, float* __restrict__ after, int rows, int columns, int height) {
  __shared__ float4 ring[SLOTS][32 * WARPS];
  const int first = (blockIdx.x * WARPS + threadIdx.x / 32) * USEFUL - SWEEPS, first_row = blockIdx.y * height;
  if (first + SWEEPS >= columns) return;  // the whole warp
  const int column = first + threadIdx.x % 32 * WIDTH;
  const bool edge = first < 0 || first + 32 * WIDTH > columns || first_row < SWEEPS || first_row + height + SWEEPS > rows;
  if (edge)
    walk<true>(ring, before, after, rows, columns, height, first_row, column);
  else
    walk<false>(ring, before, after, rows, columns, height, first_row, column);
}

extern "C" int advance(const float* before, float* after, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (columns % WIDTH) return cudaErrorInvalidValue;
  int resident = 0;
  TRY(count_resident(&resident, sweep_eight, 32 * WARPS));
  const int64_t across = ceil_div(columns, USEFUL * WARPS), down = resident > across ? resident / across : 1;
  const int64_t height = ceil_div(rows, down) > LEAST ? ceil_div(rows, down) : LEAST;
  const dim3 blocks(unsigned(across), unsigned(ceil_div(rows, height)));
  sweep_eight<<<blocks, 32 * WARPS, 0, stream>>>(before, after, int(rows), int(columns), int(height));
  return cudaGetLastError();
}
