// Standardise rows, a block to each, which keeps its row in shared memory from its one read to its one write.
#include "ampere.cuh"

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr float EPSILON = 1e-5f;

// Neighbours that one instruction moves: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

// The sum over all threads of a block, in each of them.
__device__ float sum_of_block(float value, float (&of_warps)[WARPS]) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
  __syncthreads();  // all have read the last sum's parts
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float all = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) all += of_warps[w];
  return all;
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    standardise(const float* __restrict__ x, float* __restrict__ out, int64_t columns) {
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ float of_warps[WARPS];
  auto* row = reinterpret_cast<Piece<width>*>(memory);
  const int pieces = int(columns / width);
  const auto* from = reinterpret_cast<const Piece<width>*>(x) + int64_t(blockIdx.x) * pieces;
  auto* to = reinterpret_cast<Piece<width>*>(out) + int64_t(blockIdx.x) * pieces;

#pragma unroll 4
  for (int at = threadIdx.x; at < pieces; at += THREADS) copy_async<4 * width>(row + at, from + at);
  wait_for_all_copies();  // each thread reads only what it copied itself

  float sum = 0.0f, squares = 0.0f;
#pragma unroll 4
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    const Piece<width> piece = row[at];
#pragma unroll
    for (int i = 0; i < width; ++i) sum += piece.value[i];
  }
  const float mean = sum_of_block(sum, of_warps) / columns;
#pragma unroll 4
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    const Piece<width> piece = row[at];
#pragma unroll
    for (int i = 0; i < width; ++i) squares += (piece.value[i] - mean) * (piece.value[i] - mean);
  }
  const float scale = rsqrtf(sum_of_block(squares, of_warps) / columns + EPSILON);
#pragma unroll 4
  for (int at = threadIdx.x; at < pieces; at += THREADS) {
    Piece<width> piece = row[at];
#pragma unroll
    for (int i = 0; i < width; ++i) piece.value[i] = (piece.value[i] - mean) * scale;
    to[at] = piece;
  }
}

template <int width>
cudaError_t launch(const float* x, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const int bytes = int(columns * sizeof(float));  // over 48 KB a kernel has to ask, and more than there are is refused
  TRY(cudaFuncSetAttribute(standardise<width>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  standardise<width><<<rows, THREADS, bytes, stream>>>(x, out, columns);
  return cudaGetLastError();
}

extern "C" int standardise_rows(const float* x, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  return columns % 4 == 0 ? launch<4>(x, out, rows, columns, stream) : launch<1>(x, out, rows, columns, stream);
}
