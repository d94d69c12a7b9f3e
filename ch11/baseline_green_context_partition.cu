// A persistent kernel on the current stream beside a chain of small ones that has priority, and finds no free place.
#include "kernel.cuh"

constexpr int THREADS = 256;   // of a block of the persistent kernel
constexpr int PIECES = 4;      // of 16 bytes, that a thread has on the way
constexpr int LINK_BLOCKS = 16, LINK_THREADS = 512, LINK_WARPS = LINK_BLOCKS * LINK_THREADS / 32;

__device__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// Persistent: as many blocks as fit, each of which takes every so many tiles and stays until the end.
__global__ void __launch_bounds__(THREADS, 6)
    activate(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
  const int64_t fours = n / 4, tile = THREADS * PIECES;
  for (int64_t i = blockIdx.x * tile + threadIdx.x; i < fours; i += gridDim.x * tile) {
    float4 in[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      if (i + k * THREADS < fours) in[k] = __ldcs(reinterpret_cast<const float4*>(x) + i + k * THREADS);
    }
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      const float4 out = make_float4(silu(in[k].x), silu(in[k].y), silu(in[k].z), silu(in[k].w));
      if (i + k * THREADS < fours) __stcs(reinterpret_cast<float4*>(y) + i + k * THREADS, out);
    }
  }
  const int64_t last = 4 * fours + int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (last < n) y[last] = silu(x[last]);
}

// One link: out = weight @ in, a warp for each row.
__global__ void __launch_bounds__(LINK_THREADS, 2)
    multiply(const float* __restrict__ weight, const float* __restrict__ in, float* __restrict__ out, int width) {
  for (int row = (blockIdx.x * LINK_THREADS + threadIdx.x) / 32; row < width; row += LINK_WARPS) {
    const float* weights = weight + int64_t(row) * width;
    float sum = 0.0f;
#pragma unroll 8
    for (int column = threadIdx.x % 32; column < width; column += 32) sum += weights[column] * in[column];
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
    if (threadIdx.x % 32 == 0) out[row] = sum;
  }
}

// weights [links, width, width], states [links + 1, width], of which the first is there already.
static void chain(const float* weights, float* states, int64_t links, int width, cudaStream_t stream) {
  for (int64_t i = 0; i < links; ++i) {
    float* in = states + i * width;
    multiply<<<LINK_BLOCKS, LINK_THREADS, 0, stream>>>(weights + i * width * width, in, in + width, width);
  }
}

// `room` blocks fewer on each multiprocessor than there is place for.
extern "C" int both(const float* x, float* y, const float* weights, float* states, int64_t n, int64_t links, int width,
                    int room, cudaStream_t stream) {
  static cudaStream_t side;
  static cudaEvent_t begun, ended;  // all for the life of the process
  int multiprocessors, resident, lowest, highest;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, activate, THREADS, 0));
  if (!ended) {
    TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    TRY(cudaStreamCreateWithPriority(&side, cudaStreamNonBlocking, highest));
    TRY(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    TRY(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming));
  }
  TRY(cudaEventRecord(begun, stream));
  TRY(cudaStreamWaitEvent(side, begun, 0));
  activate<<<multiprocessors * (resident - room), THREADS, 0, stream>>>(x, y, n);
  chain(weights, states, links, width, side);
  TRY(cudaEventRecord(ended, side));
  TRY(cudaStreamWaitEvent(stream, ended, 0));
  return cudaGetLastError();
}
