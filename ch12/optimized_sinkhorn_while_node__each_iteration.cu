// Sinkhorn's iteration as the body of a WHILE node in a CUDA graph: the device decides whether it runs again.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int MOST = 1000;  // iterations, should the masses never fit

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// The weights exp(-distance / epsilon), and transposed, so that both directions read along rows; rows scaled by one.
__global__ void start(const float* distances, float* weights, float* turned, float* u, int* iterations, int rows,
                      int columns, float epsilon) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= rows * columns) return;
  const int row = i / columns, column = i % columns;
  const float weight = expf(-distances[i] / epsilon);
  weights[i] = weight;
  turned[column * rows + row] = weight;
  if (column == 0) u[row] = 1.0f;
  if (i == 0) *iterations = 0;
}

// A warp a row: the scale that gives it the mass it should have and, if asked for, by how much its old one missed that.
__global__ void rescale(const float* weights, const float* other, const float* mass, float* own, float* gaps, int rows,
                        int columns) {
  const int row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  float sum = 0.0f;
#pragma unroll 8
  for (int column = threadIdx.x % 32; column < columns; column += 32) {
    sum += weights[row * columns + column] * other[column];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 != 0) return;
  if (gaps) gaps[row] = fabsf(own[row] * sum - mass[row]);
  own[row] = mass[row] / sum;
}

// One block: are the rows' masses still off by more than `tolerance` in all?
__global__ void judge(const float* gaps, int* iterations, cudaGraphConditionalHandle again, int rows,
                      float tolerance) {
  __shared__ float warps[WARPS];
  float sum = 0.0f;
  for (int row = threadIdx.x; row < rows; row += THREADS) sum += gaps[row];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += warps[warp];
  cudaGraphSetConditional(again, ++*iterations < MOST && total > tolerance);
}

__global__ void scale(const float* weights, const float* u, const float* v, float* plan, int rows, int columns) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < rows * columns) plan[i] = u[i / columns] * weights[i] * v[i % columns];
}

// Adds what `launch` enqueues to `graph`, behind the node `after` if there is one.
template <typename Launch>
cudaError_t add(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* after, Launch launch) {
  TRY(cudaStreamBeginCaptureToGraph(stream, graph, after, nullptr, after ? 1 : 0, cudaStreamCaptureModeRelaxed));
  launch();
  return cudaStreamEndCapture(stream, &graph);
}

// Leaves a graph in page-locked memory, for `replay` to run and `discard` to free. It has the addresses of all tensors,
// so they must outlive it. weights and turned are as long as distances; u and gaps have a number a row, v one a column.
extern "C" int record(const float* distances, const float* row_mass, const float* column_mass, float* plan,
                      float* weights, float* turned, float* u, float* v, float* gaps, int* iterations, int rows,
                      int columns, float epsilon, float tolerance, int64_t* executable, cudaStream_t caller) {
  const int blocks = ceil_div(int64_t(rows) * columns, THREADS);
  cudaStream_t stream;  // not the caller's, which may be the default stream: that one refuses to be captured
  TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph;
  TRY(cudaGraphCreate(&graph, 0));

  TRY(add(stream, graph, nullptr, [=] {
    start<<<blocks, THREADS, 0, stream>>>(distances, weights, turned, u, iterations, rows, columns, epsilon);
  }));
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
  TRY(add(stream, loop.conditional.phGraph_out[0], nullptr, [=] {
    rescale<<<ceil_div(columns, WARPS), THREADS, 0, stream>>>(turned, u, column_mass, v, nullptr, columns, rows);
    rescale<<<ceil_div(rows, WARPS), THREADS, 0, stream>>>(weights, v, row_mass, u, gaps, rows, columns);
    judge<<<1, THREADS, 0, stream>>>(gaps, iterations, again, rows, tolerance);
  }));

  TRY(add(stream, graph, &whole_loop, [=] {
    scale<<<blocks, THREADS, 0, stream>>>(weights, u, v, plan, rows, columns);
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
