// Breadth-first search: the last block of a level launches the next one, with a grid of the size that it needs.
// flags: -rdc=true
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int LANES = 4;  // threads of a vertex

// `order` gets all vertices as they are found, so those of a level stand in a row; `found` counts them,
// and `ended` the blocks of the level that have ended.
struct Search {
  const int *offsets, *targets, *source;
  int *distances, *order, *found, *ended;
};

__global__ void start(Search of, int vertices) {
  const int vertex = blockIdx.x * THREADS + threadIdx.x, source = *of.source;
  if (vertex < vertices) of.distances[vertex] = vertex == source ? 0 : -1;
  if (vertex > 0) return;
  of.order[0] = source;
  *of.found = 1;
  *of.ended = 0;
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

// A tail launch begins when this grid has ended, so it sees all that was written. A level that finds nothing is the
// last.
__global__ void expand(Search of, int begin, int end, int distance) {
  const int i = begin + (blockIdx.x * THREADS + threadIdx.x) / LANES;
  if (i < end) visit(of, of.order[i], distance);
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence();  // this block's vertices are counted before its end is
  if (atomicAdd(of.ended, 1) < gridDim.x - 1) return;
  *of.ended = 0;
  const int found = atomicAdd(of.found, 0);
  if (found == end) return;
  expand<<<ceil_div(LANES * (found - end), THREADS), THREADS, 0, cudaStreamTailLaunch>>>(of, end, found, distance + 1);
}

// `progress` holds two numbers.
extern "C" int search(const int* offsets, const int* targets, const int* source, int* distances, int* order,
                      int* progress, int vertices, cudaStream_t stream) {
  const Search of = {offsets, targets, source, distances, order, progress, progress + 1};
  start<<<ceil_div(vertices, THREADS), THREADS, 0, stream>>>(of, vertices);
  expand<<<1, THREADS, 0, stream>>>(of, 0, 1, 1);
  return cudaGetLastError();
}
