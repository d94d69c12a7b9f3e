// Cholesky factors of 32 x 32 matrices, a block each: columns one after the other, in shared memory.
// A matrix that is not positive definite has no factor: zeros are written.
#include "kernel.cuh"

constexpr int SIDE = 32, HIGH = 8;  // threads: a column each, of every eighth row

__global__ void __launch_bounds__(SIDE* HIGH)
    factor_in_shared(const float* __restrict__ a, float* __restrict__ out, int* __restrict__ info) {
  __shared__ float tile[SIDE][SIDE + 1];
  const int x = threadIdx.x, y = threadIdx.y;
  const int64_t begin = int64_t(blockIdx.x) * SIDE * SIDE;
  for (int i = y; i < SIDE; i += HIGH) tile[i][x] = a[begin + i * SIDE + x];
  __syncthreads();
  int failed = 0;
  for (int k = 0; k < SIDE; ++k) {
    const float pivot = tile[k][k];
    if (failed == 0 && !(pivot > 0.0f)) failed = k + 1;
    __syncthreads();  // all have read the pivot
    if (y == 0 && x >= k) tile[x][k] = x == k ? sqrtf(pivot) : tile[x][k] * rsqrtf(pivot);
    __syncthreads();  // the column is final
    for (int i = y; i < SIDE; i += HIGH) {
      if (x > k && i >= x) tile[i][x] -= tile[i][k] * tile[x][k];
    }
    __syncthreads();  // the next pivot is there
  }
  for (int i = y; i < SIDE; i += HIGH) out[begin + i * SIDE + x] = x <= i && failed == 0 ? tile[i][x] : 0.0f;
  if (x == 0 && y == 0) info[blockIdx.x] = failed;
}

extern "C" int factor(const float* a, float* out, int* info, int64_t count, cudaStream_t stream) {
  factor_in_shared<<<count, dim3(SIDE, HIGH), 0, stream>>>(a, out, info);
  return cudaGetLastError();
}
