// One thread and one atomic instruction for each four neighbours of each row.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void add_fours(const float4* __restrict__ rows, const int64_t* __restrict__ ids, float4* __restrict__ out,
                          int64_t fours, uint32_t pieces) {
  const int64_t row = blockIdx.x / pieces, column = int64_t(blockIdx.x % pieces) * THREADS + threadIdx.x;
  if (column < fours) atomicAdd(out + ids[row] * fours + column, rows[row * fours + column]);
}

extern "C" int add_rows(const float* rows, const int64_t* ids, float* out, int64_t n, int64_t width,
                        cudaStream_t stream) {
  if (width % 4) return cudaErrorInvalidValue;
  const int64_t pieces = ceil_div(width / 4, THREADS);
  add_fours<<<n * pieces, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(rows), ids,
                                                reinterpret_cast<float4*>(out), width / 4, uint32_t(pieces));
  return cudaGetLastError();
}
