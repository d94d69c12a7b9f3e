// Breadth-first search, a launch for each level: the host reads how many vertices the level found, and sizes the next.
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int LANES = 4;  // threads of a vertex

// `order` gets all vertices as they are found, so those of a level stand in a row; `found` counts them.
struct Search {
  const int *offsets, *targets, *source;
  int *distances, *order, *found;
};

__global__ void start(Search of, int vertices) {
  const int vertex = blockIdx.x * THREADS + threadIdx.x, source = *of.source;
  if (vertex < vertices) of.distances[vertex] = vertex == source ? 0 : -1;
  if (vertex > 0) return;
  of.order[0] = source;
  *of.found = 1;
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

__global__ void expand(Search of, int begin, int end, int distance) {
  const int i = begin + (blockIdx.x * THREADS + threadIdx.x) / LANES;
  if (i < end) visit(of, of.order[i], distance);
}

extern "C" int search(const int* offsets, const int* targets, const int* source, int* distances, int* order, int* found,
                      int* seen, int vertices, cudaStream_t stream) {
  const Search of = {offsets, targets, source, distances, order, found};
  start<<<ceil_div(vertices, THREADS), THREADS, 0, stream>>>(of, vertices);
  int begin = 0, end = 1;
  for (int distance = 1; begin < end; ++distance) {  // each level but the last finds a vertex
    expand<<<ceil_div(LANES * (end - begin), THREADS), THREADS, 0, stream>>>(of, begin, end, distance);
    TRY(cudaMemcpyAsync(seen, found, sizeof(int), cudaMemcpyDeviceToHost, stream));
    TRY(cudaStreamSynchronize(stream));
    begin = end;
    end = *seen;
  }
  return cudaGetLastError();
}
