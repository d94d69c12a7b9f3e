// A block of columns of a page-locked matrix: the copy engine is told the stride, and takes a piece of each row.
#include "kernel.cuh"

// `shard` [rows, width] from column `first` of `weights` [rows, columns].
extern "C" int fetch(const half* weights, half* shard, int64_t rows, int64_t columns, int64_t first, int64_t width,
                     cudaStream_t stream) {
  return cudaMemcpy2DAsync(shard, width * sizeof(half), weights + first, columns * sizeof(half), width * sizeof(half),
                           rows, cudaMemcpyHostToDevice, stream);
}
