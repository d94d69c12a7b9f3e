// Sparse matrix (CSR) times vector with a thread for each row.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    row_by_thread(const int* __restrict__ starts, const int* __restrict__ columns, const float* __restrict__ values,
                  const float* __restrict__ x, float* __restrict__ out, int rows) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = starts[row]; i < starts[row + 1]; ++i) sum += values[i] * x[columns[i]];
  out[row] = sum;
}

extern "C" int multiply(const int* starts, const int* columns, const float* values, const float* x, float* out,
                        int64_t rows, cudaStream_t stream) {
  row_by_thread<<<ceil_div(rows, THREADS), THREADS, 0, stream>>>(starts, columns, values, x, out, int(rows));
  return cudaGetLastError();
}
