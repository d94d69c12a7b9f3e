// Iterate until the changes are small as the body of a WHILE node in a CUDA graph: the device decides, no host looks.
#include "kernel.cuh"

constexpr int THREADS = 1024;  // one block: all of a problem this small
constexpr int WARPS = THREADS / 32;
constexpr int MOST = 1000;     // iterations, should the changes never become small
constexpr float INVERSE_PI = 0.318309886f;

__device__ float largest_of_warp(float value) {  // in lane 0
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value = fmaxf(value, __shfl_down_sync(~0u, value, half));
  return value;
}

__device__ float largest_of_block(float value) {  // in thread 0
  __shared__ float warps[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  value = largest_of_warp(value);
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  return warp == 0 ? largest_of_warp(warps[lane]) : 0.0f;
}

// One iteration for all orbits, from the mean anomaly where it is the first. The largest change, in thread 0.
__device__ float improve(const float* mean, const float* eccentricity, float* anomaly, int n, bool first) {
  float change = 0.0f;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float old = first ? mean[i] : anomaly[i];
    const float next = mean[i] + eccentricity[i] * INVERSE_PI * sinpif(old);
    anomaly[i] = next;
    change = fmaxf(change, fabsf(next - old));
  }
  return largest_of_block(change);
}

__global__ void start(int* iterations) { *iterations = 0; }

__global__ void __launch_bounds__(THREADS)
    iterate(const float* __restrict__ mean, const float* __restrict__ eccentricity, float* anomaly, int* iterations,
            cudaGraphConditionalHandle again, int n, float tolerance) {
  const int done = *iterations;
  const float largest = improve(mean, eccentricity, anomaly, n, done == 0);  // has a barrier: all have read `done`
  if (threadIdx.x > 0) return;
  *iterations = done + 1;
  cudaGraphSetConditional(again, done + 1 < MOST && largest > tolerance);
}

// Adds what `launch` enqueues to `graph`.
template <typename Launch>
cudaError_t add(cudaStream_t stream, cudaGraph_t graph, Launch launch) {
  TRY(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  launch();
  return cudaStreamEndCapture(stream, &graph);
}

// Leaves a graph in page-locked memory, for `replay` to run and `discard` to free. It has the addresses of all tensors,
// so they must outlive it. `iterations` is one int of the GPU's memory.
extern "C" int record(const float* mean, const float* eccentricity, float* anomaly, int* iterations, int n,
                      float tolerance, int64_t* executable, cudaStream_t caller) {
  cudaStream_t stream;  // not the caller's, which may be the default stream: that one refuses to be captured
  TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph;
  TRY(cudaGraphCreate(&graph, 0));
  TRY(add(stream, graph, [=] { start<<<1, 1, 0, stream>>>(iterations); }));
  cudaGraphNode_t first;
  size_t one = 1;
  TRY(cudaGraphGetNodes(graph, &first, &one));

  cudaGraphConditionalHandle again;  // a value on the device, which each launch of the graph sets to 1 at its start
  TRY(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams loop = {cudaGraphNodeTypeConditional};
  loop.conditional.handle = again;
  loop.conditional.type = cudaGraphCondTypeWhile;
  loop.conditional.size = 1;
  cudaGraphNode_t whole_loop;
  TRY(cudaGraphAddNode(&whole_loop, graph, &first, nullptr, 1, &loop));
  TRY(add(stream, loop.conditional.phGraph_out[0], [=] {
    iterate<<<1, THREADS, 0, stream>>>(mean, eccentricity, anomaly, iterations, again, n, tolerance);
  }));
  cudaGraphExec_t ready;
  TRY(cudaGraphInstantiate(&ready, graph, 0));
  *executable = reinterpret_cast<int64_t>(ready);
  TRY(cudaGraphDestroy(graph));
  TRY(cudaStreamDestroy(stream));
  return cudaGetLastError();
}

extern "C" int replay(int64_t executable, cudaStream_t stream) {
  return cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(executable), stream);
}

extern "C" int discard(int64_t executable, cudaStream_t stream) {
  return cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(executable));
}
