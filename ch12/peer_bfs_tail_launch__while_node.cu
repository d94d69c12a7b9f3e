// Breadth-first search: a level is the body of a WHILE node, whose blocks share what the level before has found.
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int LANES = 4;  // threads of a vertex

// `order` gets all vertices as they are found, so those of a level stand in a row; `found` counts them,
// and `ended` the blocks of the level that have ended. Vertices from `begin` to `end` are the level's.
struct Search {
  const int *offsets, *targets, *source;
  int *distances, *order, *found, *ended, *begin, *end, *distance;
};

__global__ void start(Search of, int vertices) {
  const int vertex = blockIdx.x * THREADS + threadIdx.x, source = *of.source;
  if (vertex < vertices) of.distances[vertex] = vertex == source ? 0 : -1;
  if (vertex > 0) return;
  of.order[0] = source;
  *of.found = *of.end = *of.distance = 1;
  *of.ended = *of.begin = 0;
}

// Gives the neighbours of a vertex that have no distance this one. A thread has every fourth of them.
__device__ void visit(const Search& of, int vertex, int distance) {
  for (int edge = of.offsets[vertex] + threadIdx.x % LANES; edge < of.offsets[vertex + 1]; edge += LANES) {
    const int target = of.targets[edge];
    if (of.distances[target] < 0 && atomicCAS(of.distances + target, -1, distance) < 0) {
      of.order[atomicAdd(of.found, 1)] = target;
    }
  }
}

__global__ void expand(Search of, cudaGraphConditionalHandle again) {
  const int end = *of.end, distance = *of.distance;
  for (int i = *of.begin + (blockIdx.x * THREADS + threadIdx.x) / LANES; i < end; i += gridDim.x * THREADS / LANES) {
    visit(of, of.order[i], distance);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence();  // this block's vertices are counted before its end is
  if (atomicAdd(of.ended, 1) < gridDim.x - 1) return;
  const int found = atomicAdd(of.found, 0);
  *of.ended = 0;
  *of.begin = end;
  *of.end = found;
  *of.distance = distance + 1;
  cudaGraphSetConditional(again, found > end);
}

// Leaves a graph in page-locked memory, for `replay` to run and `discard` to free. It has the addresses of all tensors,
// so they must outlive it. `progress` holds five numbers.
extern "C" int record(const int* offsets, const int* targets, const int* source, int* distances, int* order,
                      int* progress, int64_t* made, int vertices, cudaStream_t caller) {
  const Search of = {offsets, targets, source, distances, order, progress, progress + 1, progress + 2, progress + 3,
                     progress + 4};
  int multiprocessors;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  cudaStream_t stream;  // not the caller's, which may be the default stream: that one refuses to be captured
  TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph;
  TRY(cudaGraphCreate(&graph, 0));
  TRY(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  start<<<ceil_div(vertices, THREADS), THREADS, 0, stream>>>(of, vertices);
  TRY(cudaStreamEndCapture(stream, &graph));
  cudaGraphNode_t first, loop;
  size_t one = 1;
  TRY(cudaGraphGetNodes(graph, &first, &one));
  cudaGraphConditionalHandle again;  // each launch of the graph sets it to 1 at its start
  TRY(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
  params.conditional.handle = again;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  TRY(cudaGraphAddNode(&loop, graph, &first, nullptr, 1, &params));
  cudaGraph_t body = params.conditional.phGraph_out[0];
  TRY(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  expand<<<multiprocessors, THREADS, 0, stream>>>(of, again);
  TRY(cudaStreamEndCapture(stream, &body));
  cudaGraphExec_t ready;
  TRY(cudaGraphInstantiate(&ready, graph, 0));
  made[0] = reinterpret_cast<int64_t>(ready);
  TRY(cudaGraphDestroy(graph));
  return cudaStreamDestroy(stream);
}

extern "C" int replay(int64_t executable, cudaStream_t stream) {
  return cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(executable), stream);
}

extern "C" int discard(int64_t executable, cudaStream_t stream) {
  return cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(executable));
}
