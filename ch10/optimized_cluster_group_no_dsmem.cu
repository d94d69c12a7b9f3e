// A cluster of eight blocks holds a plane from its one read to its one write. Its blocks only share the L2 cache and the
// barrier of the cluster: neither distributed shared memory nor multicast. Each thread finds its moments in one walk.
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

// Of `count` numbers: their mean, and the sum of their squared distances from it.
struct Moments {
  float count, mean, squares;
};

// Those of the numbers of all lanes together, in every lane.
template <int lanes>
__device__ Moments join_lanes(Moments mine) {
  const float count = add_lanes<lanes>(mine.count), near = __shfl_sync(~0u, mine.mean, 0, lanes);
  const float mean = near + add_lanes<lanes>(mine.count * (mine.mean - near)) / fmaxf(count, 1.0f);
  const float apart = mine.mean - mean;
  return {count, mean, add_lanes<lanes>(mine.squares + mine.count * apart * apart)};
}

// Adds up a piece's distances from `pivot`, one of the thread's own numbers, and their squares: cancellation is that of
// 64 numbers at most.
template <int width>
__device__ void add_distances(const Piece<width>& piece, float pivot, float& sum, float& squares) {
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float apart = piece.value[i] - pivot;
    sum += apart;
    squares += apart * apart;
  }
}

template <int width>
__device__ Piece<width> normalized(Piece<width> piece, float mean, float scale) {
#pragma unroll
  for (int i = 0; i < width; ++i) piece.value[i] = (piece.value[i] - mean) * scale;
  return piece;
}

template <int width>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 2)
    normalize_shared(const float* __restrict__ x, float4* moments, float* __restrict__ out, int64_t pixels) {
  constexpr int KEPT = IN_REGISTERS / width, STAGED = IN_SHARED / width;  // pieces of a thread
  constexpr int STEP = CLUSTER * THREADS;
  extern __shared__ __align__(16) uint8_t memory[];
  auto* staged = reinterpret_cast<Piece<width>*>(memory) + threadIdx.x;  // every THREADS-th is this thread's own
  __shared__ Moments of_warps[WARPS];

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

  // Each thread's moments, by one walk through registers and shared memory, and the block's.
  const float pivot = kept[0].value[0];
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int j = 0; j < KEPT; ++j) {
    if (have(j)) add_distances(kept[j], pivot, sum, squares);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");  // each thread reads only what it copied itself
#pragma unroll 4
  for (int j = 0; j < STAGED; ++j) {
    if (have(KEPT + j)) add_distances(staged[j * THREADS], pivot, sum, squares);
  }
  const float count = width * (first < pieces ? (pieces - first - 1) / STEP + 1 : 0), apart = sum / fmaxf(count, 1.0f);
  const Moments of_warp = join_lanes<32>({count, pivot + apart, squares - sum * apart});
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  const Moments of_block = join_lanes<WARPS>(of_warps[threadIdx.x % WARPS]);

  // Through L2, which all multiprocessors share: .cg passes by the L1 cache. The barrier releases what was written
  // before it and acquires what the others wrote. Nobody reads this block's shared memory, so it may end when it likes.
  if (threadIdx.x == 0) {
    __stcg(moments + plane * CLUSTER + rank, float4{of_block.count, of_block.mean, of_block.squares, 0.0f});
  }
  sync_cluster();
  const float4 part = __ldcg(moments + plane * CLUSTER + threadIdx.x % CLUSTER);
  const Moments of_plane = join_lanes<CLUSTER>({part.x, part.y, part.z});
  const float mean = of_plane.mean, scale = rsqrtf(of_plane.squares / pixels + EPSILON);

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
  kernel<<<planes * CLUSTER, THREADS, BYTES, stream>>>(x, reinterpret_cast<float4*>(moments), out, pixels);
  return cudaGetLastError();
}
