// Breadth-first search: one block walks from level to level; what is too wide for it gets a grid by a tail launch.
// flags: -rdc=true
#include "kernel.cuh"

constexpr int THREADS = 128;
constexpr int ALONE = 1024;   // threads of the block that walks narrow levels
constexpr int WIDEST = 2900;  // vertices of a narrow level: what 48 KB of shared memory hold, nearly
constexpr int LANES = 4;       // threads of a vertex

// `order` gets all vertices as they are found, so those of a level stand in a row; `found` counts them,
// and `ended` the blocks of the level that have ended.
struct Search {
  const int *__restrict__ offsets, *__restrict__ targets, *source;
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

__global__ void expand(Search of, int begin, int end, int distance);
__global__ void walk(Search of, int begin, int end, int distance);

// A tail launch begins when this grid has ended, so it sees all that was written.
__device__ __forceinline__ void launch(const Search& of, int begin, int end, int distance) {
  if (end - begin > WIDEST) {
    expand<<<ceil_div(LANES * (end - begin), THREADS), THREADS, 0, cudaStreamTailLaunch>>>(of, begin, end, distance);
  } else if (end > begin) {  // a level that finds nothing is the last
    walk<<<1, ALONE, 0, cudaStreamTailLaunch>>>(of, begin, end, distance);
  }
}

// A wide level, by a grid of its size, whose last block launches the next.
__global__ void expand(Search of, int begin, int end, int distance) {
  const int i = begin + (blockIdx.x * THREADS + threadIdx.x) / LANES;
  if (i < end) visit(of, of.order[i], distance);
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence();  // this block's vertices are counted before its end is
  if (atomicAdd(of.ended, 1) < gridDim.x - 1) return;
  *of.ended = 0;
  launch(of, end, atomicAdd(of.found, 0), distance + 1);
}

// Narrow levels, by one block: a barrier of its threads stands between two. Of the counters a level has one: the next
// level counts while it is read, and the one after is set to zero.
__global__ void __launch_bounds__(ALONE) walk(Search of, int begin, int end, int distance) {
  __shared__ int2 level[2][WIDEST];  // where each vertex' edges begin and end
  __shared__ int found[3];
  for (int i = threadIdx.x; i < end - begin; i += ALONE) {
    const int vertex = of.order[begin + i];
    level[distance % 2][i] = {of.offsets[vertex], of.offsets[vertex + 1]};
  }
  if (threadIdx.x < 3) found[threadIdx.x] = 0;
  __syncthreads();
  for (; begin < end && end - begin <= WIDEST; ++distance) {
    if (threadIdx.x == 0) found[(distance + 1) % 3] = 0;
    for (int i = threadIdx.x / LANES; i < end - begin; i += ALONE / LANES) {
      const int2 edges = level[distance % 2][i];
      for (int edge = edges.x + threadIdx.x % LANES; edge < edges.y; edge += LANES) {
        const int target = of.targets[edge];
        const int2 next = {of.offsets[target], of.offsets[target + 1]};  // on their way beside the atomic operation
        if (atomicCAS(of.distances + target, -1, distance) >= 0) continue;
        const int place = atomicAdd(&found[distance % 3], 1);
        of.order[end + place] = target;
        if (place < WIDEST) level[(distance + 1) % 2][place] = next;
      }
    }
    __syncthreads();
    begin = end;
    end += found[distance % 3];
  }
  if (threadIdx.x > 0) return;
  *of.found = end;
  launch(of, begin, end, distance);
}

// `progress` holds two numbers.
extern "C" int search(const int* offsets, const int* targets, const int* source, int* distances, int* order,
                      int* progress, int vertices, cudaStream_t stream) {
  const Search of = {offsets, targets, source, distances, order, progress, progress + 1};
  start<<<ceil_div(vertices, THREADS), THREADS, 0, stream>>>(of, vertices);
  walk<<<1, ALONE, 0, stream>>>(of, 0, 1, 1);
  return cudaGetLastError();
}
