// Histograms of all pictures by one kernel: a grid with a row of blocks for each.
#include "kernel.cuh"

constexpr int THREADS = 1024, BINS = 256;
constexpr int BLOCKS = 16;   // of a picture

__global__ void __launch_bounds__(THREADS) count(const uint8_t* __restrict__ picture, int* bins, int64_t n) {
  __shared__ int block[BINS];
  for (int i = threadIdx.x; i < BINS; i += THREADS) block[i] = 0;
  __syncthreads();
  const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x, step = int64_t(gridDim.x) * THREADS;
  picture += blockIdx.y * n;
  const int64_t whole = n % 16 ? 0 : n / 16;  // other pictures do not begin at a multiple of 16 bytes
#pragma unroll 4
  for (int64_t i = first; i < whole; i += step) {
    const uint4 piece = reinterpret_cast<const uint4*>(picture)[i];
    const uint32_t words[] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int k = 0; k < 16; ++k) atomicAdd(block + (words[k / 4] >> k % 4 * 8 & 255), 1);
  }
  for (int64_t i = 16 * whole + first; i < n; i += step) atomicAdd(block + picture[i], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < BINS; i += THREADS) atomicAdd(bins + blockIdx.y * BINS + i, block[i]);
}

// codes [pictures, n], bins [pictures, 256].
extern "C" int histograms(const uint8_t* codes, int* bins, int64_t pictures, int64_t n, cudaStream_t stream) {
  TRY(cudaMemsetAsync(bins, 0, pictures * BINS * sizeof(int), stream));
  count<<<dim3(BLOCKS, pictures), THREADS, 0, stream>>>(codes, bins, n);
  return cudaGetLastError();
}
