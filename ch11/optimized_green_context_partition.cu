// A persistent kernel on most multiprocessors, beside a chain of small ones on sixteen that are set aside for it.
#include <cuda.h>

#include "kernel.cuh"

constexpr int THREADS = 256;   // of a block of the persistent kernel
constexpr int PIECES = 4;      // of 16 bytes, that a thread has on the way
constexpr int LINK_BLOCKS = 16, LINK_THREADS = 512, LINK_WARPS = LINK_BLOCKS * LINK_THREADS / 32;

// Like TRY, for a call of the driver.
#define DRIVER(call) \
  if ((call) != CUDA_SUCCESS) return cudaErrorNotSupported

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

// Multiprocessors, and a stream all of whose blocks run on them.
struct Part {
  cudaStream_t stream;
  int multiprocessors;
};

// The GPU in two parts: one of at least LINK_BLOCKS multiprocessors, and all others.
static cudaError_t divide(Part* small, Part* large) {
  decltype(&cuDeviceGetDevResource) resource_of;
  decltype(&cuDevSmResourceSplitByCount) split;
  decltype(&cuDevResourceGenerateDesc) describe;
  decltype(&cuGreenCtxCreate) create;
  decltype(&cuGreenCtxStreamCreate) stream_of;
  TRY(find_driver_function(&resource_of, "cuDeviceGetDevResource", 12040));
  TRY(find_driver_function(&split, "cuDevSmResourceSplitByCount", 12040));
  TRY(find_driver_function(&describe, "cuDevResourceGenerateDesc", 12040));
  TRY(find_driver_function(&create, "cuGreenCtxCreate", 12040));
  TRY(find_driver_function(&stream_of, "cuGreenCtxStreamCreate", 12050));
  int device;
  TRY(cudaGetDevice(&device));
  CUdevResource all, halves[2];
  unsigned int groups = 1;
  DRIVER(resource_of(device, &all, CU_DEV_RESOURCE_TYPE_SM));
  DRIVER(split(&halves[0], &groups, &all, &halves[1], 0, LINK_BLOCKS));
  for (int i = 0; i < 2; ++i) {
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    DRIVER(describe(&description, &halves[i], 1));
    DRIVER(create(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    DRIVER(stream_of(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    *(i ? large : small) = {stream, int(halves[i].sm.smCount)};
  }
  return cudaSuccess;
}

extern "C" int both(const float* x, float* y, const float* weights, float* states, int64_t n, int64_t links, int width,
                    cudaStream_t stream) {
  static Part small, large;
  static cudaEvent_t begun, ended[2];  // all for the life of the process
  int resident;
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, activate, THREADS, 0));
  if (!ended[1]) {
    TRY(divide(&small, &large));
    for (cudaEvent_t* event : {&begun, &ended[0], &ended[1]}) {
      TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  TRY(cudaEventRecord(begun, stream));
  TRY(cudaStreamWaitEvent(large.stream, begun, 0));
  TRY(cudaStreamWaitEvent(small.stream, begun, 0));
  activate<<<large.multiprocessors * resident, THREADS, 0, large.stream>>>(x, y, n);
  chain(weights, states, links, width, small.stream);
  TRY(cudaEventRecord(ended[0], large.stream));
  TRY(cudaEventRecord(ended[1], small.stream));
  TRY(cudaStreamWaitEvent(stream, ended[0], 0));
  TRY(cudaStreamWaitEvent(stream, ended[1], 0));
  return cudaGetLastError();
}
