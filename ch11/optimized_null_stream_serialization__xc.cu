// Histograms on eight streams that do not block: one memset ahead of them clears all bins.
#include "kernel.cuh"

constexpr int THREADS = 1024, BINS = 256;
constexpr int BLOCKS = 32;   // of a picture: an eighth of the places that an H200 has for them
constexpr int STREAMS = 16;  // twice as many as fit, so that blocks wait for each place

__global__ void __launch_bounds__(THREADS) count(const uint8_t* __restrict__ picture, int* bins, int64_t n) {
  __shared__ int block[BINS];
  for (int i = threadIdx.x; i < BINS; i += THREADS) block[i] = 0;
  __syncthreads();
  const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x, step = int64_t(gridDim.x) * THREADS;
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
  for (int i = threadIdx.x; i < BINS; i += THREADS) atomicAdd(bins + i, block[i]);
}

// codes [pictures, n], bins [pictures, 256].
extern "C" int histograms(const uint8_t* codes, int* bins, int64_t pictures, int64_t n, cudaStream_t stream) {
  static cudaStream_t sides[STREAMS];
  static cudaEvent_t begun, ended[STREAMS];  // both for the life of the process
  if (!begun) {
    for (int k = 0; k < STREAMS; ++k) {
      TRY(cudaStreamCreateWithFlags(&sides[k], cudaStreamNonBlocking));
      TRY(cudaEventCreateWithFlags(&ended[k], cudaEventDisableTiming));
    }
    TRY(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
  }
  TRY(cudaMemsetAsync(bins, 0, pictures * BINS * sizeof(int), stream));
  TRY(cudaEventRecord(begun, stream));
  for (cudaStream_t side : sides) TRY(cudaStreamWaitEvent(side, begun, 0));
  for (int64_t i = 0; i < pictures; ++i) {
    count<<<BLOCKS, THREADS, 0, sides[i % STREAMS]>>>(codes + i * n, bins + i * BINS, n);
  }
  for (int k = 0; k < STREAMS; ++k) {
    TRY(cudaEventRecord(ended[k], sides[k]));
    TRY(cudaStreamWaitEvent(stream, ended[k], 0));
  }
  return cudaGetLastError();
}
