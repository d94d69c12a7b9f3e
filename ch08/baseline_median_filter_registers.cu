// The median of 5 x 5 values by insertion sort in an array of each thread.
// spills: registers have no run-time index, so the array lies in local memory, which is what this file is about
#include "kernel.cuh"

constexpr int WIDE = 32, HIGH = 8;  // threads of a block, a pixel each
constexpr int SIDE = 5, COUNT = SIDE * SIDE;

__global__ void __launch_bounds__(WIDE* HIGH)
    median_sorted(const float* __restrict__ image, float* __restrict__ out, int rows, int columns) {
  const int x = blockIdx.x * WIDE + threadIdx.x, y = blockIdx.y * HIGH + threadIdx.y;
  if (x >= columns || y >= rows) return;
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    const int row = min(max(y + i / SIDE - SIDE / 2, 0), rows - 1);
    const int column = min(max(x + i % SIDE - SIDE / 2, 0), columns - 1);
    const float value = image[int64_t(row) * columns + column];
    int place = i;
    for (; place > 0 && values[place - 1] > value; --place) values[place] = values[place - 1];
    values[place] = value;
  }
  out[int64_t(y) * columns + x] = values[COUNT / 2];
}

extern "C" int median_filter(const float* image, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 grid(ceil_div(columns, WIDE), ceil_div(rows, HIGH)), block(WIDE, HIGH);
  median_sorted<<<grid, block, 0, stream>>>(image, out, int(rows), int(columns));
  return cudaGetLastError();
}
