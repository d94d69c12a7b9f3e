// Zeros the table's gradient and adds each token's row to it with fp32 atomics, a block for a token.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    add_rows(const float* __restrict__ grads, const int64_t* __restrict__ ids, float* __restrict__ out, int64_t width) {
  const float* from = grads + blockIdx.x * width;
  float* to = out + ids[blockIdx.x] * width;
  for (int64_t column = threadIdx.x; column < width; column += THREADS) atomicAdd(to + column, from[column]);
}

extern "C" int scatter_add(const float* grads, const int64_t* ids, float* out, int64_t tokens, int64_t vocab,
                           int64_t width, cudaStream_t stream) {
  TRY(cudaMemsetAsync(out, 0, vocab * width * sizeof(float), stream));
  add_rows<<<tokens, THREADS, 0, stream>>>(grads, ids, out, width);
  return cudaGetLastError();
}
