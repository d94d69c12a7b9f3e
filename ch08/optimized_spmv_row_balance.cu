// Sparse matrix (CSR) times vector along the merge path (Merrill and Garland, "Merge-based parallel SpMV", SC 2016):
// numbers and ends of rows, in order, are one sequence of steps, of which each thread takes equally many. A step adds a
// number to a sum, or ends a row.
#include "kernel.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int EACH = 9;  // steps of a thread; odd, so that threads read different banks
constexpr int TILE = EACH * THREADS;

// Which row each block begins with, and zeros in the result. Row r ends with step `end` = r + starts[r + 1], so that of
// all steps from one end to the next the same number of rows has ended before.
__global__ void __launch_bounds__(THREADS)
    find_first_rows(const int* __restrict__ starts, int* __restrict__ first_rows, float* __restrict__ out, int rows,
                    int64_t tiles) {
  const int64_t row = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (row > rows) return;
  const int64_t last = row > 0 ? row - 1 + starts[row] : -1;  // where the row before ends
  const int64_t end = row < rows ? row + starts[row + 1] : tiles * TILE;
  if (row < rows) out[row] = 0.0f;
  for (int64_t tile = (last + TILE) / TILE; tile * TILE <= end && tile <= tiles; ++tile) first_rows[tile] = int(row);
}

// A sum that is not finished, and whether a row ended before it began: then nothing earlier belongs to it.
struct Carry {
  float sum;
  bool fresh;
};

__device__ Carry join(Carry left, Carry right) {
  return {right.fresh ? right.sum : left.sum + right.sum, left.fresh || right.fresh};
}

// What all threads before this one leave to it, and in `all` what the block leaves to the next.
__device__ Carry scan_block(Carry mine, Carry& all) {
  __shared__ Carry of_warps[WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    const Carry left = {__shfl_up_sync(~0u, mine.sum, apart), bool(__shfl_up_sync(~0u, int(mine.fresh), apart))};
    if (lane >= apart) mine = join(left, mine);
  }
  if (lane == 31) of_warps[warp] = mine;
  __syncthreads();
  Carry before = {0.0f, false};
  all = before;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) {
    all = join(all, of_warps[i]);
    if (i + 1 == warp) before = all;
  }
  const Carry left = {__shfl_up_sync(~0u, mine.sum, 1), bool(__shfl_up_sync(~0u, int(mine.fresh), 1))};
  return lane > 0 ? join(before, left) : before;
}

__global__ void __launch_bounds__(THREADS)
    walk(const int* __restrict__ starts, const int* __restrict__ columns, const float* __restrict__ values,
         const float* __restrict__ x, const int* __restrict__ first_rows, float* __restrict__ out, int rows,
         int count) {
  __shared__ float products[TILE];
  __shared__ int ends[TILE];
  const int64_t first = int64_t(blockIdx.x) * TILE, total = int64_t(rows) + count;
  const int steps = min(int64_t(TILE), total - first);
  const int row = first_rows[blockIdx.x], here = first_rows[blockIdx.x + 1] - row;  // rows that end in this tile
  const int number = first - row, numbers = steps - here;
  int column[EACH];
  float product[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {  // all loads are on their way before the first is used
    const int i = k * THREADS + threadIdx.x;
    column[k] = i < numbers ? columns[number + i] : 0;
    product[k] = i < numbers ? values[number + i] : 0.0f;
  }
  for (int i = threadIdx.x; i < here; i += THREADS) ends[i] = starts[row + i + 1] - number;
#pragma unroll
  for (int k = 0; k < EACH; ++k) product[k] *= x[column[k]];
#pragma unroll
  for (int k = 0; k < EACH; ++k) products[k * THREADS + threadIdx.x] = product[k];
  __syncthreads();

  // Where this thread's part of the path begins: `r` rows and `i` numbers before it.
  const int step = min(int(threadIdx.x) * EACH, steps);
  int r = max(step - numbers, 0);
  for (int high = min(step, here); r < high;) {
    const int middle = (r + high) / 2;
    if (ends[middle] <= step - middle - 1) {
      r = middle + 1;
    } else {
      high = middle;
    }
  }
  int i = step - r;
  const int opened = r;
  float sum = 0.0f, opened_sum = 0.0f;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    if (step + k < steps) {
      if (r < here && ends[r] <= i) {
        if (r == opened) {
          opened_sum = sum;  // what earlier threads found of this row is still to come
        } else {
          out[row + r] = sum;
        }
        sum = 0.0f;
        ++r;
      } else {
        sum += products[i++];
      }
    }
  }

  Carry all;
  const Carry before = scan_block({sum, r > opened}, all);
  if (r > opened) {
    const float whole = before.sum + opened_sum;
    if (opened == 0) {
      atomicAdd(out + row, whole);  // of the block's first row other blocks may have a part
    } else {
      out[row + opened] = whole;
    }
  }
  if (threadIdx.x == 0 && row + here < rows) atomicAdd(out + row + here, all.sum);
}

extern "C" int multiply(const int* starts, const int* columns, const float* values, const float* x, int* first_rows,
                        float* out, int64_t rows, int64_t count, cudaStream_t stream) {
  const int64_t tiles = ceil_div(rows + count, TILE);
  find_first_rows<<<ceil_div(rows + 1, THREADS), THREADS, 0, stream>>>(starts, first_rows, out, int(rows), tiles);
  TRY(cudaGetLastError());
  walk<<<tiles, THREADS, 0, stream>>>(starts, columns, values, x, first_rows, out, int(rows), int(count));
  return cudaGetLastError();
}
