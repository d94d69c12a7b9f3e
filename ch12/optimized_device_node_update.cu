// RMSNorm of the rows in use: the kernel that counts them sets the grid of each layer's node in the running graph.
// flags: -rdc=true
// On some targets `plan`, which is one warp, spills around the calls of the device runtime.
#include "kernel.cuh"
#include <vector>

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

// One warp: how many rows are in use. Each layer's kernel, which has not begun, gets as many blocks; at least one.
__global__ void plan(const int* lengths, int64_t* used, const cudaGraphDeviceNode_t* nodes, int sequences, int layers) {
  int sum = 0;
  for (int i = threadIdx.x; i < sequences; i += 32) sum += lengths[i];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) *used = sum;
  for (int i = threadIdx.x; i < layers; i += 32) cudaGraphKernelNodeSetGridDim(nodes[i], dim3(max(sum, 1)));
}

__global__ void __launch_bounds__(THREADS) normalize(float* x, const float* weight, const int64_t* used, int width) {
  __shared__ float warps[WARPS];
  auto own = reinterpret_cast<float4*>(x + int64_t(blockIdx.x) * width) + threadIdx.x;
  const bool inside = 4 * threadIdx.x < width;
  // All three loads are on their way together. There is a row for each block, in use or not.
  const int64_t rows = *used;
  const float4 value = inside ? *own : make_float4(0, 0, 0, 0);
  const float4 by = inside ? reinterpret_cast<const float4*>(weight)[threadIdx.x] : make_float4(0, 0, 0, 0);
  if (blockIdx.x >= rows) return;
  const float sum = warp_sum(value.x * value.x + value.y * value.y + value.z * value.z + value.w * value.w);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += warps[warp];
  if (!inside) return;
  const float scale = rsqrtf(total / width + 1e-6f);
  *own = {value.x * scale * by.x, value.y * scale * by.y, value.z * scale * by.z, value.w * scale * by.w};
}

// Leaves a graph and its description in page-locked memory, for `replay` to run and `discard` to free. It has the
// addresses of all tensors, so they must outlive it. `state` has a number, and one more for each layer.
extern "C" int record(float* x, const float* weight, const int* lengths, int64_t* state, int64_t* made, int sequences,
                      int layers, int rows, int width, cudaStream_t caller) {
  if (width % 4 || width > 4 * THREADS) return cudaErrorInvalidValue;
  cudaStream_t stream;  // not the caller's, which may be the default stream: that one refuses to be captured
  TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  auto nodes = reinterpret_cast<cudaGraphDeviceNode_t*>(state + 1);
  plan<<<1, 32, 0, stream>>>(lengths, state, nodes, sequences, layers);
  std::vector<cudaGraphDeviceNode_t> handles;  // by which a kernel names a node
  for (int layer = 0; layer < layers; ++layer) {
    cudaLaunchAttribute updatable = {cudaLaunchAttributeDeviceUpdatableKernelNode};
    updatable.val.deviceUpdatableKernelNode.deviceUpdatable = 1;
    cudaLaunchConfig_t config = {dim3(rows), dim3(THREADS), 0, stream, &updatable, 1};
    TRY(cudaLaunchKernelEx(&config, normalize, x + int64_t(layer) * rows * width, weight + layer * width,
                           static_cast<const int64_t*>(state), width));
    handles.push_back(updatable.val.deviceUpdatableKernelNode.devNode);  // the call has filled it in
    if (!handles.back()) return cudaErrorNotSupported;
  }
  cudaGraph_t graph;
  TRY(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t ready;
  TRY(cudaGraphInstantiate(&ready, graph, 0));
  TRY(cudaMemcpyAsync(nodes, handles.data(), layers * sizeof(handles[0]), cudaMemcpyHostToDevice, caller));
  TRY(cudaGraphUpload(ready, caller));  // nodes must be on the device before a kernel of their own graph sets them
  TRY(cudaStreamSynchronize(caller));
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
