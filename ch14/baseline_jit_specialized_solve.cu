// A thread solves a system of n equations, n being known at run time: Gauss's elimination without pivots.
// spills: registers have no run-time index, so the matrix lies in local memory, which is what this file is about
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int MOST = 16;  // unknowns

__global__ void __launch_bounds__(THREADS) eliminate(const float* a, const float* b, float* x, int n, int64_t batch) {
  const int64_t system = blockIdx.x * int64_t(THREADS) + threadIdx.x;
  if (system >= batch) return;
  float m[MOST][MOST], y[MOST];
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) m[row][column] = a[(row * n + column) * batch + system];
    y[row] = b[row * batch + system];
  }
  for (int pivot = 0; pivot < n; ++pivot) {
    const float inverse = 1.0f / m[pivot][pivot];
    for (int row = pivot + 1; row < n; ++row) {
      const float factor = m[row][pivot] * inverse;
      for (int column = pivot + 1; column < n; ++column) m[row][column] -= factor * m[pivot][column];
      y[row] -= factor * y[pivot];
    }
  }
  for (int row = n - 1; row >= 0; --row) {
    for (int column = row + 1; column < n; ++column) y[row] -= m[row][column] * y[column];
    y[row] /= m[row][row];
    x[row * batch + system] = y[row];
  }
}

// a [n, n, batch], b and x [n, batch].
extern "C" int solve(const float* a, const float* b, float* x, int64_t n, int64_t batch, cudaStream_t stream) {
  if (n > MOST) return cudaErrorInvalidValue;
  eliminate<<<ceil_div(batch, THREADS), THREADS, 0, stream>>>(a, b, x, n, batch);
  return cudaGetLastError();
}
