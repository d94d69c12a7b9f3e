// RMSNorm of the rows in use, which the device counts: as many blocks as the GPU holds at once share them.
#include "kernel.cuh"

constexpr int THREADS = 128;  // a row, four numbers each
constexpr int WARPS = THREADS / 32;

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

__device__ int warp_sum(int value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// One warp: how many rows are in use.
__global__ void plan(const int* lengths, int64_t* used, int sequences) {
  int sum = 0;
  for (int i = threadIdx.x; i < sequences; i += 32) sum += lengths[i];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) *used = sum;
}

__global__ void __launch_bounds__(THREADS) normalize(float* x, const float* weight, const int64_t* used, int width) {
  __shared__ float warps[WARPS];
  const bool inside = 4 * threadIdx.x < width;
  const int64_t rows = *used;
  const float4 by = inside ? reinterpret_cast<const float4*>(weight)[threadIdx.x] : make_float4(0, 0, 0, 0);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    auto own = reinterpret_cast<float4*>(x + row * width) + threadIdx.x;
    const float4 value = inside ? *own : make_float4(0, 0, 0, 0);
    const float sum = warp_sum(value.x * value.x + value.y * value.y + value.z * value.z + value.w * value.w);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) total += warps[warp];
    const float scale = rsqrtf(total / width + 1e-6f);
    if (inside) *own = {value.x * scale * by.x, value.y * scale * by.y, value.z * scale * by.z, value.w * scale * by.w};
    __syncthreads();  // the sums of this row have been read
  }
}

// Leaves a graph and its description in page-locked memory, for `replay` to run and `discard` to free. It has the
// addresses of all tensors, so they must outlive it. `state` has a number, and one more for each layer.
extern "C" int record(float* x, const float* weight, const int* lengths, int64_t* state, int64_t* made, int sequences,
                      int layers, int rows, int width, cudaStream_t caller) {
  if (width % 4 || width > 4 * THREADS) return cudaErrorInvalidValue;
  int blocks;
  TRY(count_resident(&blocks, normalize, THREADS));
  cudaStream_t stream;  // not the caller's, which may be the default stream: that one refuses to be captured
  TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  plan<<<1, 32, 0, stream>>>(lengths, state, sequences);
  for (int layer = 0; layer < layers; ++layer) {
    normalize<<<blocks, THREADS, 0, stream>>>(x + int64_t(layer) * rows * width, weight + layer * width, state,
                                              width);
  }
  cudaGraph_t graph;
  TRY(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t ready;
  TRY(cudaGraphInstantiate(&ready, graph, 0));
  made[0] = reinterpret_cast<int64_t>(ready);
  made[1] = reinterpret_cast<int64_t>(graph);
  return cudaStreamDestroy(stream);
}

extern "C" int replay(int64_t executable, cudaStream_t stream) {
  return cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(executable), stream);
}

extern "C" int discard(int64_t executable, int64_t graph, cudaStream_t stream) {
  TRY(cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(executable)));
  return cudaGraphDestroy(reinterpret_cast<cudaGraph_t>(graph));
}
