// Sparse matrix (CSR) times vector with a part of a warp for each row.
#include "kernel.cuh"

constexpr int THREADS = 256;

template <int lanes>
__global__ void __launch_bounds__(THREADS)
    row_by_lanes(const int* __restrict__ starts, const int* __restrict__ columns, const float* __restrict__ values,
                 const float* __restrict__ x, float* __restrict__ out, int rows) {
  const int row = blockIdx.x * (THREADS / lanes) + threadIdx.x / lanes;
  float sum = 0.0f;
  if (row < rows) {
    const int end = starts[row + 1];
    for (int i = starts[row] + threadIdx.x % lanes; i < end; i += lanes) sum += values[i] * x[columns[i]];
  }
#pragma unroll
  for (int apart = lanes / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
  if (row < rows && threadIdx.x % lanes == 0) out[row] = sum;
}

template <int lanes>
cudaError_t launch(const int* starts, const int* columns, const float* values, const float* x, float* out, int64_t rows,
                   cudaStream_t stream) {
  const int64_t blocks = ceil_div(rows, THREADS / lanes);
  row_by_lanes<lanes><<<blocks, THREADS, 0, stream>>>(starts, columns, values, x, out, int(rows));
  return cudaGetLastError();
}

// The largest power of two that is no more than the mean length of a row.
extern "C" int multiply(const int* starts, const int* columns, const float* values, const float* x, float* out,
                        int64_t rows, int64_t count, cudaStream_t stream) {
  const auto call = count < 4 * rows    ? launch<2>
                    : count < 8 * rows  ? launch<4>
                    : count < 16 * rows ? launch<8>
                    : count < 32 * rows ? launch<16>
                                        : launch<32>;
  return call(starts, columns, values, x, out, rows, stream);
}
