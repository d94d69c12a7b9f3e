// Count codes in a set of bins for each lane of a warp: lane k owns bank k, so no two lanes ever meet.
#include "grid.cuh"

constexpr int THREADS = 1024;
constexpr int BINS = 256;
constexpr int COPIES = 32;  // one for each lane, each in a bank of its own: 32 KiB in all
constexpr int LOADS = 4;  // of 16 codes, in flight in each thread

__device__ void count_word(int* own, uint32_t word) {
#pragma unroll
  for (int shift = 0; shift < 32; shift += 8) atomicAdd(own + (word >> shift & 255) * COPIES, 1);
}

__device__ void count_piece(int* own, uint4 piece) {
  count_word(own, piece.x);
  count_word(own, piece.y);
  count_word(own, piece.z);
  count_word(own, piece.w);
}

// The next kernel counts meanwhile, and waits for this one before it adds to the bins.
__global__ void clear(int* bins) {
  start_next();
  bins[threadIdx.x] = 0;
}

__global__ void __launch_bounds__(THREADS, 2) count(const uint8_t* __restrict__ codes, int* bins, int64_t n) {
  __shared__ int block[BINS * COPIES];  // the copies of a bin stand side by side
  for (int i = threadIdx.x; i < BINS * COPIES; i += THREADS) block[i] = 0;
  __syncthreads();

  int* own = block + threadIdx.x % COPIES;
  const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x, threads = int64_t(gridDim.x) * THREADS;
  const uint4* pieces = reinterpret_cast<const uint4*>(codes);
  int64_t i = first;
#pragma unroll 1
  for (; i + (LOADS - 1) * threads < n / 16; i += LOADS * threads) {
    uint4 piece[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) piece[k] = pieces[i + k * threads];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) count_piece(own, piece[k]);
  }
#pragma unroll 1
  for (; i < n / 16; i += threads) count_piece(own, pieces[i]);
  if (n / 16 * 16 + first < n) atomicAdd(own + codes[n / 16 * 16 + first] * COPIES, 1);  // up to 15 are left over
  __syncthreads();

  wait_for_last();  // the bins are zero
  for (int bin = threadIdx.x; bin < BINS; bin += THREADS) {
    int sum = 0;
#pragma unroll
    for (int k = 0; k < COPIES; ++k) sum += block[bin * COPIES + (bin + k) % COPIES];  // each lane in another bank
    atomicAdd(bins + bin, sum);
  }
}

extern "C" int histogram(const uint8_t* codes, int* bins, int64_t n, cudaStream_t stream) {
  int resident = 0, generation = 0;
  TRY(count_resident(&resident, count, THREADS));
  TRY(query_device(&generation, cudaDevAttrComputeCapabilityMajor));
  const int64_t enough = ceil_div(n, 16 * LOADS * THREADS), full = resident;
  clear<<<1, BINS, 0, stream>>>(bins);
  TRY(cudaGetLastError());
  return launch_early(generation >= 9, count, dim3(enough < full ? enough : full), THREADS, stream, codes, bins, n);
}
