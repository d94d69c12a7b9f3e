// Eight sweeps of a 5-point stencil in one pass over the grid.
//
// A lane has four neighbouring columns, a warp 128. The warp reads a row at a time. Of each sweep it keeps the two newest
// rows, so the third gives the row above it of the next sweep; the eighth sweep's row goes to memory. Neighbours in a row
// come from the next lanes. What lies outside the warp's columns is unknown, so each sweep makes one more column wrong at
// both sides: after eight, two lanes of each side. They are computed by the next warp, and eight rows at both ends too.
#include "kernel.cuh"

constexpr int SWEEPS = 8, WIDTH = 8, ROWS = 588;  // sweeps of a warp; columns of a lane; rows of a block
constexpr int MARGIN = 2 * SWEEPS;                  // rows and columns at each side that another block computes
constexpr float BACK = 0x1p-48f;  // 8 to the power of -MARGIN
constexpr int USEFUL = 32 * WIDTH - 2 * MARGIN;  // columns of a block that are right at the end

struct Row {
  float value[WIDTH];
};

__device__ Row read(const float* before, int row, int column, int rows, int columns) {
  Row read = {};
  if (row < 0 || row >= rows || column < 0 || column >= columns) return read;
  const auto* place = reinterpret_cast<const float4*>(before + int64_t(row) * columns + column);
#pragma unroll
  for (int i = 0; i < WIDTH; i += 4) {
    const float4 four = column + i < columns ? place[i / 4] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    read.value[i] = four.x, read.value[i + 1] = four.y, read.value[i + 2] = four.z, read.value[i + 3] = four.w;
  }
  return read;
}

__device__ void write(float* after, const Row& done, int row, int column, int columns) {
  auto* place = reinterpret_cast<float4*>(after + int64_t(row) * columns + column);
#pragma unroll
  for (int i = 0; i < WIDTH; i += 4) {
    if (column + i < columns)
      place[i / 4] = make_float4(BACK * done.value[i], BACK * done.value[i + 1], BACK * done.value[i + 2],
                                 BACK * done.value[i + 3]);
  }
}

// Eight times the next value: a power of two more in each sweep is exact, and saves a multiplication.
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

// The first warp makes sweeps one to eight, and hands each row, one step later, to the second, which makes the others.
// `edge`: some of these points are outside the grid, where every sweep leaves zero.
template <bool edge>
__device__ void walk(const float* before, float* after, int rows, int columns, int first_row, int column) {
  __shared__ float4 handed[2][WIDTH / 4][32];
  const int lane = threadIdx.x % 32, margin = MARGIN / WIDTH;
  const bool second = threadIdx.x >= 32;
  const bool inside = column >= 0 && column < columns, own = inside && lane >= margin && lane < 32 - margin;
  Row above[SWEEPS] = {}, here[SWEEPS] = {}, coming = {};
  if (!second) {
    coming = read(before, first_row - MARGIN, column, rows, columns);
#pragma unroll
    for (int i = 0; i < WIDTH / 4; ++i) handed[1][i][lane] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  __syncthreads();
  const int shift = second ? MARGIN + SWEEPS + 1 : MARGIN;
#pragma unroll 3
  for (int step = 0; step < ROWS + 2 * MARGIN + 1; ++step) {
    const int row = first_row - shift + step;
    Row newest = coming;
    if (second) {
#pragma unroll
      for (int i = 0; i < WIDTH / 4; ++i) {
        const float4 four = handed[(step + 1) % 2][i][lane];
        newest.value[4 * i] = four.x, newest.value[4 * i + 1] = four.y;
        newest.value[4 * i + 2] = four.z, newest.value[4 * i + 3] = four.w;
      }
    } else {
      coming = read(before, row + 1, column, rows, columns);  // arrives while this row is worked on
    }
#pragma unroll
    for (int sweep = 0; sweep < SWEEPS; ++sweep) {
      Row next = relax(above[sweep], here[sweep], newest);
      above[sweep] = here[sweep], here[sweep] = newest;
      const int place = row - sweep - 1;
      if (edge) {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
          if (!inside || place < 0 || place >= rows || column + i >= columns) next.value[i] = 0.0f;
        }
      }
      newest = next;
    }
    const int done = row - SWEEPS;
    if (!second) {
#pragma unroll
      for (int i = 0; i < WIDTH / 4; ++i)
        handed[step % 2][i][lane] = make_float4(newest.value[4 * i], newest.value[4 * i + 1], newest.value[4 * i + 2],
                                                newest.value[4 * i + 3]);
    } else if (own && done >= first_row && done < first_row + ROWS && done < rows) {
      write(after, newest, done, column, columns);
    }
    __syncthreads();  // this row is there, and the one before it may be overwritten
  }
}

__global__ void __launch_bounds__(64, 4)
    sweep_sixteen(const float* __restrict__ before, float* __restrict__ after, int rows, int columns) {
  const int first = blockIdx.x * USEFUL - MARGIN, first_row = blockIdx.y * ROWS;
  const int column = first + threadIdx.x % 32 * WIDTH;
  const bool edge =
      first < 0 || first + 32 * WIDTH > columns || first_row < 2 * MARGIN || first_row + ROWS + 2 * MARGIN > rows;
  if (edge)
    walk<true>(before, after, rows, columns, first_row, column);
  else
    walk<false>(before, after, rows, columns, first_row, column);
}

extern "C" int advance(const float* before, float* after, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (columns % 4) return cudaErrorInvalidValue;
  const dim3 blocks(unsigned(ceil_div(columns, USEFUL)), unsigned(ceil_div(rows, ROWS)));
  sweep_sixteen<<<blocks, 64, 0, stream>>>(before, after, int(rows), int(columns));
  return cudaGetLastError();
}
