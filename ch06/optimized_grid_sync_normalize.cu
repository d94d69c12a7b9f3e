// Divide each vector by its length in one kernel: its values wait in registers until all blocks have told what theirs add
// up to. A further warp of each block does the telling, and keeps TMA at work on the next vector meanwhile.
// targets: sm_90a, sm_100a, sm_103a (TMA, and 200 KB of shared memory)
#include "tma.cuh"

constexpr int WORKERS = 512;
constexpr int WARPS = WORKERS / 32;
constexpr int THREADS = WORKERS + 32;
constexpr int MANY = 16;           // pieces of a thread, in registers
constexpr int TURN = 4;            // of these, which come together: 32 KB of a block
constexpr int TURNS = MANY / TURN; // of a vector
constexpr int RING = 6;           // turns that are in shared memory or on their way there
constexpr int AT_ONCE = 5;         // words that a lane asks for

// Vectors lie one behind the other, so pieces of 16 bytes need lengths that are multiples of 4; others have `width` 1.
template <int width>
struct alignas(4 * width) Piece {
  float at[width];
};

struct Shared {
  Piece<4> ring[RING][TURN * WORKERS];
  Barrier full[RING], empty[RING], summed, known;
  float of_warps[WARPS], factor;
};

template <int width>
__device__ float squares(Piece<width> piece) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < width; ++i) sum += piece.at[i] * piece.at[i];
  return sum;
}

template <int width>
__device__ Piece<width> scaled(Piece<width> piece, float factor) {
#pragma unroll
  for (int i = 0; i < width; ++i) piece.at[i] *= factor;
  return piece;
}

// The same in every lane of a warp.
__device__ float sum_of_warp(float value) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(~0u, value, half);
  return value;
}

// The pieces of a vector that are a block's: one stretch.
struct Share {
  int64_t begin;
  int count;
};

__device__ Share share_of(int64_t pieces) {
  const int64_t whole = ceil_div(ceil_div(pieces, gridDim.x), 32) * 32, begin = min(blockIdx.x * whole, pieces);
  return {begin, int(min(whole, pieces - begin))};
}

// Begins to copy a turn's pieces; turns are numbered through all vectors.
__device__ void fetch(Shared& shared, const float* x, int64_t turn, int64_t vectors, int64_t n, Share share) {
  if (turn >= vectors * TURNS) return;
  const int first = int(turn % TURNS) * TURN * WORKERS, place = int(turn % RING);
  const uint32_t bytes = max(0, min(share.count - first, TURN * WORKERS)) * sizeof(Piece<4>);
  arrive_and_expect(&shared.full[place], bytes);
  const float* from = x + turn / TURNS * n + (share.begin + first) * 4;
  if (bytes) load_row(shared.ring[place], from, bytes, &shared.full[place]);
}

// A block's sum is written once, and no sum has all bits set: that is what stands there before.
constexpr uint32_t UNKNOWN = ~0u;

// The sum of what all blocks have told; by one warp.
__device__ float sum_of_blocks(const uint32_t* told) {
  float sum = 0.0f;
#pragma unroll 1
  for (int begin = threadIdx.x % 32; begin < gridDim.x; begin += 32 * AT_ONCE) {
    uint32_t word[AT_ONCE];
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        word[i] = 0;
        if (begin + 32 * i < gridDim.x) {
          asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word[i]) : "l"(told + begin + 32 * i) : "memory");
        }
        missing |= word[i] == UNKNOWN;
      }
    } while (missing);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) sum += __uint_as_float(word[i]);
  }
  return sum_of_warp(sum);
}

template <bool bulk>
__device__ void talk(Shared& shared, const float* x, uint32_t* told, int64_t vectors, int64_t n, Share share) {
  const int lane = threadIdx.x % 32;
  if (bulk && lane == 0) {
    for (int turn = 0; turn < RING; ++turn) fetch(shared, x, turn, vectors, n, share);
  }
#pragma unroll 1
  for (int64_t v = 0; v < vectors; ++v) {
    if (bulk && lane == 0) {
      for (int64_t turn = v * TURNS; turn < (v + 1) * TURNS; ++turn) {
        wait(&shared.empty[turn % RING], turn / RING % 2);
        fetch(shared, x, turn + RING, vectors, n, share);
      }
    }
    __syncwarp();
    wait(&shared.summed, v % 2);
    const float own = sum_of_warp(lane < WARPS ? shared.of_warps[lane] : 0.0f);
    uint32_t* const of_vector = told + v * gridDim.x;
    if (lane == 0) {
      asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(of_vector + blockIdx.x), "r"(__float_as_uint(own))
                   : "memory");
    }
    const float all = sum_of_blocks(of_vector);
    if (lane == 0) {
      shared.factor = rsqrtf(all);
      arrive(&shared.known);
    }
  }
}

template <bool bulk>
__device__ void work(Shared& shared, const float* x, float* out, int64_t vectors, int64_t n, Share share) {
  constexpr int width = bulk ? 4 : 1;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int own = share.count > int(threadIdx.x) ? int(ceil_div(share.count - int(threadIdx.x), WORKERS)) : 0;
#pragma unroll 1
  for (int64_t v = 0; v < vectors; ++v) {
    const auto from = reinterpret_cast<const Piece<width>*>(x + v * n) + share.begin + threadIdx.x;
    const auto to = reinterpret_cast<Piece<width>*>(out + v * n) + share.begin + threadIdx.x;
    Piece<width> held[MANY];
    float sum = 0.0f;
#pragma unroll
    for (int t = 0; t < TURNS; ++t) {
      const int64_t turn = v * TURNS + t;
      if constexpr (bulk) wait(&shared.full[turn % RING], turn / RING % 2);
#pragma unroll
      for (int k = t * TURN; k < (t + 1) * TURN; ++k) {
        held[k] = {};
        if (k >= own) continue;
        if constexpr (bulk) {
          held[k] = shared.ring[turn % RING][(k - t * TURN) * WORKERS + threadIdx.x];
        } else {
          held[k] = from[k * WORKERS];
        }
      }
#pragma unroll
      for (int k = t * TURN; k < (t + 1) * TURN; ++k) sum += squares(held[k]);
      if constexpr (bulk) {
        publish_tile();  // what was read may now be written again by TMA
        __syncwarp();
        if (lane == 0) arrive(&shared.empty[turn % RING]);
      }
    }
#pragma unroll 1
    for (int k = MANY; k < own; ++k) sum += squares(from[k * WORKERS]);  // more than a small GPU can hold
    sum = sum_of_warp(sum);
    if (lane == 0) {
      shared.of_warps[warp] = sum;
      arrive(&shared.summed);
    }
    wait(&shared.known, v % 2);
    const float factor = shared.factor;
#pragma unroll
    for (int k = 0; k < MANY; ++k) {
      if (k < own) to[k * WORKERS] = scaled(held[k], factor);
    }
#pragma unroll 1
    for (int k = MANY; k < own; ++k) to[k * WORKERS] = scaled(from[k * WORKERS], factor);
  }
}

template <bool bulk>
__global__ void __launch_bounds__(THREADS, 1)
    normalize_all(const float* __restrict__ x, float* __restrict__ out, uint32_t* told, int64_t vectors, int64_t n) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int place = 0; place < RING; ++place) init(&shared.full[place], 1), init(&shared.empty[place], WARPS);
    init(&shared.summed, WARPS);
    init(&shared.known, 1);
    publish_barriers();
  }
  __syncthreads();
  const Share share = share_of(bulk ? n / 4 : n);
  if (threadIdx.x < WORKERS) {
    work<bulk>(shared, x, out, vectors, n, share);
  } else {
    talk<bulk>(shared, x, told, vectors, n, share);
  }
}

// `told` has `places` words, one for each block and vector. The launch is cooperative: all blocks run at once.
extern "C" int normalize(const float* x, float* out, int* told, int64_t places, int64_t vectors, int64_t n,
                         cudaStream_t stream) {
  const auto kernel = reinterpret_cast<const void*>(n % 4 ? normalize_all<false> : normalize_all<true>);
  constexpr int BYTES = sizeof(Shared);
  int resident = 0;
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  TRY(count_resident(&resident, kernel, THREADS, BYTES));
  if (resident * vectors > places) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(told, 0xff, resident * vectors * sizeof(int), stream));
  void* arguments[] = {&x, &out, &told, &vectors, &n};
  return cudaLaunchCooperativeKernel(kernel, dim3(resident), dim3(THREADS), arguments, BYTES, stream);
}
