// Histograms on sixteen blocking streams; the null stream, which clears the bins, waits for all, and all wait for it.
#include "kernel.cuh"

constexpr int THREADS = 1024, BINS = 256, LANES = 32;
constexpr int BLOCKS = 32;   // of a picture: an eighth of the places that an H200 has for them
constexpr int STREAMS = 16;  // twice as many as fit, so that blocks wait for each place

// A lane adds in a column of its own, which is a bank of shared memory: equal codes of a warp's lanes never collide.
__global__ void __launch_bounds__(THREADS, 2) count(const uint8_t* __restrict__ picture, int* bins, int64_t n) {
  __shared__ int table[BINS][LANES];
  for (int i = threadIdx.x; i < BINS * LANES; i += THREADS) table[0][i] = 0;
  __syncthreads();
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
    if (lane == 0) atomicAdd(bins + bin, sum);
  }
}

// codes [pictures, n], bins [pictures, 256].
extern "C" int histograms(const uint8_t* codes, int* bins, int64_t pictures, int64_t n, cudaStream_t stream) {
  static cudaStream_t sides[STREAMS];
  static cudaEvent_t begun, ended[STREAMS];  // both for the life of the process
  if (!begun) {
    for (int k = 0; k < STREAMS; ++k) {
      TRY(cudaStreamCreate(&sides[k]));
      TRY(cudaEventCreateWithFlags(&ended[k], cudaEventDisableTiming));
    }
    TRY(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
  }
  TRY(cudaEventRecord(begun, stream));
  TRY(cudaStreamWaitEvent(cudaStreamLegacy, begun, 0));
  for (cudaStream_t side : sides) TRY(cudaStreamWaitEvent(side, begun, 0));
  for (int64_t i = 0; i < pictures; ++i) {
    TRY(cudaMemset(bins + i * BINS, 0, BINS * sizeof(int)));  // on the null stream
    count<<<BLOCKS, THREADS, 0, sides[i % STREAMS]>>>(codes + i * n, bins + i * BINS, n);
  }
  for (int k = 0; k < STREAMS; ++k) {
    TRY(cudaEventRecord(ended[k], sides[k]));
    TRY(cudaStreamWaitEvent(stream, ended[k], 0));
  }
  return cudaGetLastError();
}
