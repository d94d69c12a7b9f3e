// Breadth-first search in one kernel: its blocks are on the GPU together and wait for each other after each level.
#include "kernel.cuh"
#include <cooperative_groups.h>

constexpr int THREADS = 128;
constexpr int LANES = 4;  // threads of a vertex

// `order` gets all vertices as they are found, so those of a level stand in a row. Of the three counters in
// `found` a level has one: what it finds is read from it while the next level counts, and the one after is set to zero.
struct Search {
  const int *offsets, *targets, *source;
  int *distances, *order, *found;
};

// Gives the neighbours of a vertex that have no distance this one; they stand from `end` on. A thread has every fourth
// of them.
__device__ void visit(const Search& of, int vertex, int distance, int end) {
  for (int edge = of.offsets[vertex] + threadIdx.x % LANES; edge < of.offsets[vertex + 1]; edge += LANES) {
    const int target = of.targets[edge];
    if (of.distances[target] < 0 && atomicCAS(of.distances + target, -1, distance) < 0) {
      of.order[end + atomicAdd(of.found + distance % 3, 1)] = target;
    }
  }
}

__global__ void __launch_bounds__(THREADS) walk(Search of, int vertices) {
  const auto grid = cooperative_groups::this_grid();
  const int thread = grid.thread_rank(), threads = grid.size(), source = *of.source;
  for (int vertex = thread; vertex < vertices; vertex += threads) of.distances[vertex] = vertex == source ? 0 : -1;
  if (thread < 3) of.found[thread] = 0;
  if (thread == 0) of.order[0] = source;
  grid.sync();
  for (int distance = 1, begin = 0, end = 1; begin < end; ++distance) {
    if (thread == 0) of.found[(distance + 1) % 3] = 0;
    for (int i = begin + thread / LANES; i < end; i += threads / LANES) visit(of, of.order[i], distance, end);
    grid.sync();
    begin = end;
    end += *static_cast<volatile int*>(of.found + distance % 3);
  }
}

// `found` holds three numbers.
extern "C" int search(const int* offsets, const int* targets, const int* source, int* distances, int* order, int* found,
                      int vertices, cudaStream_t stream) {
  Search of = {offsets, targets, source, distances, order, found};
  int multiprocessors;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  void* parameters[] = {&of, &vertices};
  return cudaLaunchCooperativeKernel(reinterpret_cast<void*>(walk), dim3(multiprocessors), dim3(THREADS), parameters, 0,
                                     stream);
}
