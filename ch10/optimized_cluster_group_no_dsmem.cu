// A cluster of eight blocks holds a plane from its one read to its one write. Its blocks only share the L2 cache and the
// barrier of the cluster: neither distributed shared memory nor multicast.
#include "cluster.cuh"

constexpr int CLUSTER = 8;  // blocks: as many as every GPU with clusters of this kind allows
constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr int IN_REGISTERS = 16;  // floats of a thread
constexpr int IN_SHARED = 48;     // floats of a thread: 96 KiB a block, so that two blocks fit on a multiprocessor
constexpr int BYTES = IN_SHARED * THREADS * 4;
constexpr int64_t MOST = int64_t(CLUSTER) * THREADS * (IN_REGISTERS + IN_SHARED);  // pixels: 262144
constexpr float EPSILON = 1e-5f;

// Neighbours that one instruction loads: four where planes begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

template <int lanes>
__device__ float add_lanes(float mine) {
#pragma unroll
  for (int apart = lanes / 2; apart > 0; apart /= 2) mine += __shfl_xor_sync(~0u, mine, apart);
  return mine;
}

// The sum over all threads of the block, in every thread; `of_warps` is used by one call alone.
__device__ float add_block(float mine, float* of_warps) {
  const float of_warp = add_lanes<32>(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return add_lanes<WARPS>(of_warps[threadIdx.x % WARPS]);
}

template <int width>
__device__ float sum_of(const Piece<width>& piece) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < width; ++i) sum += piece.value[i];
  return sum;
}

template <int width>
__device__ float squares_of(const Piece<width>& piece, float mean) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < width; ++i) sum += (piece.value[i] - mean) * (piece.value[i] - mean);
  return sum;
}

template <int width>
__device__ Piece<width> normalized(Piece<width> piece, float mean, float scale) {
#pragma unroll
  for (int i = 0; i < width; ++i) piece.value[i] = (piece.value[i] - mean) * scale;
  return piece;
}

// How many of `pieces` block `rank` of the cluster has: THREADS in turn.
__device__ int pieces_of(int rank, int pieces) {
  constexpr int STEP = CLUSTER * THREADS;
  return pieces / STEP * THREADS + min(max(pieces % STEP - rank * THREADS, 0), THREADS);
}

template <int width>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 2)
    normalize_shared(const float* __restrict__ x, float2* moments, float* __restrict__ out, int64_t pixels) {
  constexpr int KEPT = IN_REGISTERS / width, STAGED = IN_SHARED / width;  // pieces of a thread
  constexpr int STEP = CLUSTER * THREADS;
  extern __shared__ __align__(16) uint8_t memory[];
  auto* staged = reinterpret_cast<Piece<width>*>(memory) + threadIdx.x;  // every THREADS-th is this thread's own
  __shared__ float of_warps[2][WARPS];

  const int64_t plane = blockIdx.x / CLUSTER;
  const int rank = blockIdx.x % CLUSTER, pieces = pixels / width, first = rank * THREADS + threadIdx.x;
  const auto* in = reinterpret_cast<const Piece<width>*>(x + plane * pixels);
  auto* to = reinterpret_cast<Piece<width>*>(out + plane * pixels);
  const auto have = [&](int j) { return first + j * STEP < pieces; };
  Piece<width> kept[KEPT];
#pragma unroll
  for (int j = 0; j < KEPT; ++j) kept[j] = have(j) ? in[first + j * STEP] : Piece<width>{};
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) {
    if (have(KEPT + j)) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(staged + j * THREADS)),
                   "l"(in + first + (KEPT + j) * STEP), "n"(sizeof(Piece<width>))
                   : "memory");
    }
  }

  // Mean and sum of squared distances from it, of this block's part: two walks, through registers and shared memory.
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int j = 0; j < KEPT; ++j) sum += sum_of(kept[j]);
  asm volatile("cp.async.wait_all;" ::: "memory");  // each thread reads only what it copied itself
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) sum += have(KEPT + j) ? sum_of(staged[j * THREADS]) : 0.0f;
  const float of_block = add_block(sum, of_warps[0]) / max(pieces_of(rank, pieces) * width, 1);
#pragma unroll
  for (int j = 0; j < KEPT; ++j) squares += have(j) ? squares_of(kept[j], of_block) : 0.0f;
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) squares += have(KEPT + j) ? squares_of(staged[j * THREADS], of_block) : 0.0f;
  squares = add_block(squares, of_warps[1]);

  // Through L2, which all multiprocessors share: .cg passes by the L1 cache. The barrier releases what was written
  // before it and acquires what the others wrote. Nobody reads this block's shared memory, so it may end when it likes.
  if (threadIdx.x == 0) __stcg(moments + plane * CLUSTER + rank, float2{of_block, squares});
  sync_cluster();
  const int other = threadIdx.x % CLUSTER;
  const float2 part = __ldcg(moments + plane * CLUSTER + other);
  const float count = pieces_of(other, pieces) * width;
  const float mean = add_lanes<CLUSTER>(count * (part.x - of_block)) / pixels + of_block;
  const float apart = part.x - mean;
  const float scale = rsqrtf(add_lanes<CLUSTER>(part.y + count * apart * apart) / pixels + EPSILON);

#pragma unroll
  for (int j = 0; j < KEPT; ++j) {
    if (have(j)) to[first + j * STEP] = normalized(kept[j], mean, scale);
  }
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) {
    if (have(KEPT + j)) to[first + (KEPT + j) * STEP] = normalized(staged[j * THREADS], mean, scale);
  }
}

extern "C" int normalize(const float* x, float* moments, float* out, int64_t planes, int64_t pixels,
                         cudaStream_t stream) {
  if (pixels > MOST) return cudaErrorInvalidValue;
  const auto kernel = pixels % 4 ? normalize_shared<1> : normalize_shared<4>;
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  kernel<<<planes * CLUSTER, THREADS, BYTES, stream>>>(x, reinterpret_cast<float2*>(moments), out, pixels);
  return cudaGetLastError();
}
