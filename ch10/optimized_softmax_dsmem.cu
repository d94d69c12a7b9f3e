// A cluster of eight blocks holds a row from its one read to its one write; of totals each block writes its own to all.
#include "cluster.cuh"

#include <float.h>

constexpr int CLUSTER = 8;  // blocks: as many as every GPU with clusters of this kind allows
constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr int IN_REGISTERS = 16;  // floats of a thread
constexpr int IN_SHARED = 48;     // floats of a thread: 96 KiB a block, so that two blocks fit on a multiprocessor
constexpr int BYTES = IN_SHARED * THREADS * 4;
constexpr int64_t MOST = int64_t(CLUSTER) * THREADS * (IN_REGISTERS + IN_SHARED);  // columns: 262144

// Neighbours that one instruction loads: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

// A sum of exponentials: x is the largest element, y the sum on the scale of that.
__device__ float2 join(float2 a, float2 b) {
  const float peak = fmaxf(a.x, b.x);
  return {peak, a.y * expf(a.x - peak) + b.y * expf(b.x - peak)};
}

template <int lanes>
__device__ float2 join_lanes(float2 mine) {
#pragma unroll
  for (int apart = lanes / 2; apart > 0; apart /= 2) {
    mine = join(mine, {__shfl_xor_sync(~0u, mine.x, apart), __shfl_xor_sync(~0u, mine.y, apart)});
  }
  return mine;
}

// The exponentials of a piece on the scale of `peak`, whose sum is added to `sum`.
template <int width>
__device__ Piece<width> exponentials(Piece<width> piece, float peak, float& sum) {
#pragma unroll
  for (int i = 0; i < width; ++i) sum += piece.value[i] = expf(piece.value[i] - peak);
  return piece;
}

template <int width>
__device__ float largest(const Piece<width>& piece, float peak) {
#pragma unroll
  for (int i = 0; i < width; ++i) peak = fmaxf(peak, piece.value[i]);
  return peak;
}

template <int width>
__device__ Piece<width> times(Piece<width> piece, float scale) {
#pragma unroll
  for (int i = 0; i < width; ++i) piece.value[i] *= scale;
  return piece;
}

template <int width>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 2)
    softmax_shared(const float* __restrict__ x, float* __restrict__ out, int64_t columns) {
  constexpr int KEPT = IN_REGISTERS / width, STAGED = IN_SHARED / width;  // pieces of a thread
  constexpr int STEP = CLUSTER * THREADS;
  extern __shared__ __align__(16) uint8_t memory[];
  auto* staged = reinterpret_cast<Piece<width>*>(memory) + threadIdx.x;  // every THREADS-th is this thread's own
  __shared__ float2 of_warps[WARPS], of_blocks[CLUSTER];
  __shared__ Barrier landed;
  if (threadIdx.x == 0) {
    init(&landed, 1);
    publish_barriers();
    arrive_and_expect(&landed, sizeof(of_blocks));  // 8 bytes from each block of the cluster
  }
  arrive_at_cluster();  // this block has begun, and its barrier is there

  const int64_t row = blockIdx.x / CLUSTER;
  const auto* in = reinterpret_cast<const Piece<width>*>(x + row * columns);
  auto* to = reinterpret_cast<Piece<width>*>(out + row * columns);
  const int pieces = columns / width, first = cluster_rank() * THREADS + threadIdx.x;
  Piece<width> none, kept[KEPT];
#pragma unroll
  for (int i = 0; i < width; ++i) none.value[i] = -INFINITY;  // which adds nothing
#pragma unroll
  for (int j = 0; j < KEPT; ++j) kept[j] = first + j * STEP < pieces ? in[first + j * STEP] : none;
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) {  // after the loads into registers, which ptxas would else put behind the wait
    const int at = first + (KEPT + j) * STEP;
    if (at < pieces) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(staged + j * THREADS)),
                   "l"(in + at), "n"(sizeof(Piece<width>))
                   : "memory");
    } else {
      staged[j * THREADS] = none;
    }
  }

  float2 mine = {-FLT_MAX, 0.0f};  // not infinity, whose difference to itself is no number
#pragma unroll
  for (int j = 0; j < KEPT; ++j) mine.x = largest(kept[j], mine.x);
  asm volatile("cp.async.wait_all;" ::: "memory");  // each thread reads only what it copied itself
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) mine.x = largest(staged[j * THREADS], mine.x);
#pragma unroll
  for (int j = 0; j < KEPT; ++j) kept[j] = exponentials(kept[j], mine.x, mine.y);
#pragma unroll 2
  for (int j = 0; j < STAGED; ++j) staged[j * THREADS] = exponentials(staged[j * THREADS], mine.x, mine.y);

  const float2 of_warp = join_lanes<32>(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  const float2 of_block = join_lanes<WARPS>(of_warps[threadIdx.x % WARPS]);
  wait_for_cluster();  // all blocks have begun, so there is somewhere to write to
  if (threadIdx.x < CLUSTER) store_at(&of_blocks[cluster_rank()], &landed, threadIdx.x, of_block);
  wait(&landed, 0);  // all totals are here, and nobody else writes into this block: it may end when it likes
  const float2 of_row = join_lanes<CLUSTER>(of_blocks[threadIdx.x % CLUSTER]);

  const float scale = expf(mine.x - of_row.x) / of_row.y;
#pragma unroll
  for (int j = 0; j < KEPT; ++j) {
    if (first + j * STEP < pieces) to[first + j * STEP] = times(kept[j], scale);
  }
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) {
    const int at = first + (KEPT + j) * STEP;
    if (at < pieces) to[at] = times(staged[j * THREADS], scale);
  }
}

extern "C" int softmax(const float* x, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (columns > MOST) return cudaErrorInvalidValue;
  const auto kernel = columns % 4 ? softmax_shared<1> : softmax_shared<4>;
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  kernel<<<rows * CLUSTER, THREADS, BYTES, stream>>>(x, out, columns);
  return cudaGetLastError();
}
