// Histograms of all pictures by one kernel: a grid with a row of blocks for each.
#include "kernel.cuh"

constexpr int THREADS = 1024, BINS = 256, LANES = 32;
constexpr int BLOCKS = 16;   // of a picture

// A lane has bins of its own, all in the bank of its number: no two lanes of a warp meet.
__global__ void __launch_bounds__(THREADS) count(const uint8_t* __restrict__ picture, int* bins, int64_t n) {
  __shared__ int block[BINS][LANES];
  const int lane = threadIdx.x % LANES;
  for (int i = threadIdx.x; i < BINS * LANES; i += THREADS) block[i / LANES][i % LANES] = 0;
  __syncthreads();
  const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x, step = int64_t(gridDim.x) * THREADS;
  picture += blockIdx.y * n;
  const int64_t whole = n % 16 ? 0 : n / 16;  // other pictures do not begin at a multiple of 16 bytes
#pragma unroll 4
  for (int64_t i = first; i < whole; i += step) {
    const uint4 piece = reinterpret_cast<const uint4*>(picture)[i];
    const uint32_t words[] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int k = 0; k < 16; ++k) atomicAdd(&block[words[k / 4] >> k % 4 * 8 & 255][lane], 1);
  }
  for (int64_t i = 16 * whole + first; i < n; i += step) atomicAdd(&block[picture[i]][lane], 1);
  __syncthreads();
  for (int bin = threadIdx.x / LANES; bin < BINS; bin += THREADS / LANES) {
    const int sum = __reduce_add_sync(0xffffffff, block[bin][lane]);
    if (lane == 0) atomicAdd(bins + blockIdx.y * BINS + bin, sum);
  }
}

// codes [pictures, n], bins [pictures, 256].
extern "C" int histograms(const uint8_t* codes, int* bins, int64_t pictures, int64_t n, cudaStream_t stream) {
  if (const cudaError_t error = cudaMemsetAsync(bins, 0, pictures * BINS * sizeof(int), stream)) return error;
  count<<<dim3(BLOCKS, pictures), THREADS, 0, stream>>>(codes, bins, n);
  return cudaGetLastError();
}
