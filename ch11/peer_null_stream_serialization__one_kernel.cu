// Histograms of all pictures by one kernel: a grid with a row of blocks for each.
#include "kernel.cuh"

constexpr int THREADS = 1024, BINS = 256, LANES = 32;
constexpr int BLOCKS = 32;   // of a picture

// A lane adds in a column of its own, which is a bank of shared memory: equal codes of a warp's lanes never collide.
__global__ void __launch_bounds__(THREADS, 2) count(const uint8_t* __restrict__ picture, int* bins, int64_t n) {
  __shared__ int table[BINS][LANES];
  for (int i = threadIdx.x; i < BINS * LANES; i += THREADS) table[0][i] = 0;
  __syncthreads();
  picture += blockIdx.y * n;
  const int lane = threadIdx.x % LANES, first = blockIdx.x * THREADS + threadIdx.x, step = gridDim.x * THREADS;
  const int whole = n % 16 ? 0 : n / 16;  // other pictures do not begin at a multiple of 16 bytes
  auto pieces = reinterpret_cast<const uint4*>(picture);
  uint4 next = first < whole ? pieces[first] : uint4{};
  for (int i = first; i < whole; i += step) {
    const uint32_t words[] = {next.x, next.y, next.z, next.w};
    if (i + step < whole) next = pieces[i + step];  // on its way while these are counted
#pragma unroll
    for (int k = 0; k < 16; ++k) atomicAdd(&table[__byte_perm(words[k / 4], 0, 0x4440 + k % 4)][lane], 1);
  }
  for (int64_t i = 16 * int64_t(whole) + first; i < n; i += step) atomicAdd(&table[picture[i]][lane], 1);
  __syncthreads();
  for (int bin = threadIdx.x / LANES; bin < BINS; bin += THREADS / LANES) {
    const int sum = __reduce_add_sync(~0u, table[bin][lane]);
    if (lane == 0) atomicAdd(bins + blockIdx.y * BINS + bin, sum);
  }
}

// codes [pictures, n], bins [pictures, 256].
extern "C" int histograms(const uint8_t* codes, int* bins, int64_t pictures, int64_t n, cudaStream_t stream) {
  TRY(cudaMemsetAsync(bins, 0, pictures * BINS * sizeof(int), stream));
  count<<<dim3(BLOCKS, pictures), THREADS, 0, stream>>>(codes, bins, n);
  return cudaGetLastError();
}
