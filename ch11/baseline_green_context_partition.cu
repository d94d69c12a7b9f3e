// A persistent kernel on the current stream beside a chain of small ones that has priority, and finds no free place.
#include "kernel.cuh"

constexpr int THREADS = 256;   // of a block of the persistent kernel
constexpr int LINK_BLOCKS = 16, LINK_THREADS = 512, LINK_WARPS = LINK_BLOCKS * LINK_THREADS / 32;

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }

// Persistent: as many blocks as fit, each of which takes its share of the values and stays until the end.
__global__ void __launch_bounds__(THREADS, 6) activate(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
  const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x, step = int64_t(gridDim.x) * THREADS;
#pragma unroll 2
  for (int64_t i = first; i < n / 4; i += step) {
    const float4 in = reinterpret_cast<const float4*>(x)[i];
    reinterpret_cast<float4*>(y)[i] = make_float4(silu(in.x), silu(in.y), silu(in.z), silu(in.w));
  }
  for (int64_t i = n / 4 * 4 + first; i < n; i += step) y[i] = silu(x[i]);
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
