// Count all ids in the shared memory of four blocks: three of four additions go to another block.
// targets: sm_90a, sm_100a, sm_103a (clusters, and 227 KiB of shared memory a block)
#include "cluster.cuh"

constexpr int THREADS = 1024;
constexpr int CLUSTER = 4;   // blocks
constexpr int HEAD = 0;      // ids below would be counted by each block in a table of its own
constexpr int AHEAD = 4;     // loads of four ids that a thread begins before it uses one

// Of the tail, the ids from HEAD on, 32 go to one block, 32 to the next: all blocks get equally much to do, and 32
// neighbours are one line of the result.
__device__ int slot_of(int tail) { return tail / (32 * CLUSTER) * 32 + tail % 32; }
__device__ int rank_of(int tail) { return tail / 32 % CLUSTER; }
__device__ int tail_of(int slot, int rank) { return (slot / 32 * CLUSTER + rank) * 32 + slot % 32; }

__device__ void count(uint32_t* head, uint32_t* tail, uint32_t id) {
  if (id < HEAD) {
    atomicAdd(head + id, 1u);
  } else {
    count_at(tail + slot_of(id - HEAD), rank_of(id - HEAD));
  }
}

__device__ void count(uint32_t* head, uint32_t* tail, int4 ids) {
  count(head, tail, ids.x);
  count(head, tail, ids.y);
  count(head, tail, ids.z);
  count(head, tail, ids.w);
}

// Each block begins elsewhere, by `turn`, so that not all add to the same line of the result.
template <class Id>
__device__ void add_table(const uint32_t* table, int size, int turn, int* counts, Id id_of) {
  for (int i = threadIdx.x; i < size; i += THREADS) {
    const int slot = (i + turn) % size;
    if (table[slot]) atomicAdd(counts + id_of(slot), int(table[slot]));
  }
}

__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    count_shared(const int* __restrict__ ids, int* __restrict__ counts, int64_t n, int vocabulary, int slots) {
  extern __shared__ __align__(16) uint32_t head[];
  uint32_t* tail = head + HEAD;
  const int rank = cluster_rank();
  for (int i = threadIdx.x; i < HEAD + slots; i += THREADS) head[i] = 0;
  sync_cluster();  // all tables are clear

  const auto* fours = reinterpret_cast<const int4*>(ids);
  const int64_t stride = int64_t(gridDim.x) * THREADS, whole = n / 4;
  int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  for (; i + (AHEAD - 1) * stride < whole; i += AHEAD * stride) {
    int4 four[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) four[k] = __ldcs(fours + i + k * stride);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) count(head, tail, four[k]);
  }
  for (; i < whole; i += stride) count(head, tail, fours[i]);
  if (blockIdx.x == 0 && threadIdx.x < n % 4) count(head, tail, uint32_t(ids[4 * whole + threadIdx.x]));
  sync_cluster();  // nobody adds to this block's tables any more

  const int turn = blockIdx.x / CLUSTER * THREADS;
  add_table(head, HEAD, turn, counts, [](int slot) { return slot; });
  add_table(tail, slots, turn, counts, [rank](int slot) { return HEAD + tail_of(slot, rank); });
}

// As many clusters as the GPU holds at a time: not all of its multiprocessors form fours.
extern "C" int count_ids(const int* ids, int* counts, int64_t n, int64_t vocabulary, cudaStream_t stream) {
  const int slots = vocabulary > HEAD ? ceil_div(vocabulary - HEAD, 32 * CLUSTER) * 32 : 0;
  const int bytes = (HEAD + slots) * sizeof(uint32_t);
  TRY(cudaFuncSetAttribute(count_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cudaLaunchConfig_t config = {};
  config.gridDim = CLUSTER;
  config.blockDim = THREADS;
  config.dynamicSmemBytes = bytes;
  int clusters = 0;
  TRY(cudaOccupancyMaxActiveClusters(&clusters, count_shared, &config));
  TRY(cudaMemsetAsync(counts, 0, vocabulary * sizeof(int), stream));
  count_shared<<<clusters * CLUSTER, THREADS, bytes, stream>>>(ids, counts, n, vocabulary, slots);
  return cudaGetLastError();
}
