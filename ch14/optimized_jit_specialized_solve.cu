// A thread solves a system of N equations: Gauss's elimination without pivots. The Python file writes N into the text.
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int BLOCKS = 4;  // of a multiprocessor at least: without this bound the compiler loads numbers late
constexpr int N = 8;       // unknowns

// Every index is known once the loops are unrolled, so m and y are registers.
__global__ void __launch_bounds__(THREADS, BLOCKS) eliminate(const float* a, const float* b, float* x, int64_t batch) {
  const int64_t system = blockIdx.x * int64_t(THREADS) + threadIdx.x;
  if (system >= batch) return;
  float m[N][N], y[N], inverse[N];
  const float* from = a + system;  // one address that steps, so that the matrix has the registers
#pragma unroll
  for (int row = 0; row < N; ++row) {
#pragma unroll
    for (int column = 0; column < N; ++column, from += batch) m[row][column] = *from;
    y[row] = b[row * batch + system];
  }
#pragma unroll
  for (int pivot = 0; pivot < N; ++pivot) {
    inverse[pivot] = __fdividef(1.0f, m[pivot][pivot]);  // to an ulp or two, in two instructions and no branch
#pragma unroll
    for (int row = 0; row < N; ++row) {  // all loops have N turns, which the compiler surely unrolls
      if (row <= pivot) continue;
      const float factor = m[row][pivot] * inverse[pivot];
#pragma unroll
      for (int column = 0; column < N; ++column) {
        if (column > pivot) m[row][column] -= factor * m[pivot][column];
      }
      y[row] -= factor * y[pivot];
    }
  }
#pragma unroll
  for (int turn = 0; turn < N; ++turn) {
    const int row = N - 1 - turn;
#pragma unroll
    for (int column = 0; column < N; ++column) {
      if (column > row) y[row] -= m[row][column] * y[column];
    }
    y[row] *= inverse[row];
    x[row * batch + system] = y[row];
  }
}

// a [N, N, batch], b and x [N, batch].
extern "C" int solve(const float* a, const float* b, float* x, int64_t n, int64_t batch, cudaStream_t stream) {
  if (n != N) return cudaErrorInvalidValue;
  eliminate<<<ceil_div(batch, THREADS), THREADS, 0, stream>>>(a, b, x, batch);
  return cudaGetLastError();
}
