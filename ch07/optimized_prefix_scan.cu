// Inclusive scan in one pass: a block has a ring of tiles, some on their way in, and some that wait for the sums of the
// tiles before them, which blocks find by telling each other what their tiles have.
// targets: sm_80, sm_90a, sm_100a, sm_103a (112 KiB of shared memory a block)
#include "ampere.cuh"

constexpr int WORKERS = 256;
constexpr int WARPS = WORKERS / 32;
constexpr int THREADS = WORKERS + 32;       // and a warp that talks with the other blocks
constexpr int PIECES = 4;                   // of four numbers, in each thread of a tile
constexpr int TILE = 4 * PIECES * WORKERS;  // numbers
constexpr int AHEAD = 2;                    // tiles on their way in
constexpr int LAG = 4;                      // turns that a tile waits for those of other blocks
constexpr int SLOTS = AHEAD + LAG + 1;
constexpr int RESIDENT = 2;   // blocks of a multiprocessor
constexpr int TOGETHER = 9;  // words that a lane asks for at once

__device__ int64_t place_of(int64_t tile) {
  return tile * TILE + threadIdx.x / 32 * (TILE / WARPS) + threadIdx.x % 32 * 4;
}

// Starts to copy this thread's pieces. Piece p is 128 p numbers further on: a warp's copies are runs of 512 bytes.
__device__ void fetch(float4* slot, const float* a, int64_t tile, int64_t n) {
  const int64_t first = place_of(tile);
  if ((tile + 1) * TILE <= n) {
#pragma unroll
    for (int p = 0; p < PIECES; ++p) copy_async<16>(slot + p * WORKERS, a + first + 128 * p);
  } else {  // beyond the end there are zeros
#pragma unroll 1
    for (int p = 0; p < PIECES; ++p) {
      const int64_t at = first + 128 * p;
      slot[p * WORKERS] = {at + 0 < n ? a[at + 0] : 0.0f, at + 1 < n ? a[at + 1] : 0.0f, at + 2 < n ? a[at + 2] : 0.0f,
                           at + 3 < n ? a[at + 3] : 0.0f};
    }
  }
}

// The sum of what a warp has of a tile, in each lane.
__device__ float measure(const float4* slot) {
  float4 sum = slot[0];
#pragma unroll
  for (int p = 1; p < PIECES; ++p) {
    const float4 more = slot[p * WORKERS];
    sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
  }
  float all = (sum.x + sum.y) + (sum.z + sum.w);
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) all += __shfl_xor_sync(~0u, all, apart);
  return all;
}

// Writes the sums of a warp's part of a tile, each with `before`, the sum of all numbers before that part.
__device__ void finish(const float4* slot, float before, float* out, int64_t tile, int64_t n) {
  const int lane = threadIdx.x % 32;
  const int64_t first = place_of(tile);
  const bool full = (tile + 1) * TILE <= n;
  float4 piece[PIECES];
  float upto[PIECES];  // sum of piece p of this lane and those before it
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    piece[p] = slot[p * WORKERS];
    piece[p].y += piece[p].x;
    piece[p].z += piece[p].y;
    upto[p] = piece[p].w += piece[p].z;
  }
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const float lower = __shfl_up_sync(~0u, upto[p], apart);
      if (lane >= apart) upto[p] += lower;
    }
  }
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const float lower = __shfl_up_sync(~0u, upto[p], 1), base = lane > 0 ? before + lower : before;
    before += __shfl_sync(~0u, upto[p], 31);
    const float4 sums = {piece[p].x + base, piece[p].y + base, piece[p].z + base, piece[p].w + base};
    const int64_t at = first + 128 * p;
    if (full || at + 4 <= n) {
      __stcs(reinterpret_cast<float4*>(out + at), sums);
    } else {
      if (at + 0 < n) out[at + 0] = sums.x;
      if (at + 1 < n) out[at + 1] = sums.y;
      if (at + 2 < n) out[at + 2] = sums.z;
    }
  }
}

// The word of a tile is the float of its sum. All bits set: nothing is known yet, so a sum with these bits, which is no
// number, is told as another that is none.
constexpr uint32_t UNKNOWN = ~0u;

__device__ void publish(uint32_t* state, float sum) {
  const uint32_t bits = __float_as_uint(sum), word = bits == UNKNOWN ? UNKNOWN / 2 : bits;
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(state), "r"(word) : "memory");
}

__device__ uint32_t look(const uint32_t* state) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(state) : "memory");
  return word;
}

__device__ float sum_lanes(float value) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
  return value;
}

// Of a turn's tiles, the sum of those before this block's (x) and of all (y); by one warp, the same in every lane. All
// blocks add in the same order, so they have the same sum of all.
__device__ float2 listen(const uint* states, int count) {
  const int lane = threadIdx.x % 32;
  float before = 0.0f, all = 0.0f;
#pragma unroll 1
  for (int begin = lane; begin < count; begin += 32 * TOGETHER) {
    uint32_t word[TOGETHER];
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        word[i] = begin + 32 * i < count ? look(states + begin + 32 * i) : 0;
        missing |= word[i] == UNKNOWN;
      }
    } while (missing);
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
      const float sum = __uint_as_float(word[i]);
      before += begin + 32 * i < blockIdx.x ? sum : 0.0f;
      all += sum;
    }
  }
  return {sum_lanes(before), sum_lanes(all)};
}

// In each turn the blocks take as many neighbouring tiles as there are blocks. A turn measures one tile, finishes the
// one from LAG turns before, and finds what is before the one that the next turn will finish. Each turn ends at one
// barrier, before which the workers and the warp that talks touch different words of shared memory.
__global__ void __launch_bounds__(THREADS, RESIDENT)
    scan_in_one_pass(const float* __restrict__ a, uint* states, float* __restrict__ out, int64_t n, int tiles) {
  static_assert(LAG >= 2, "a tile's sum is told of in the turn after its own");
  extern __shared__ float4 memory[];
  __shared__ float of_warps[SLOTS][WARPS], before[2][WARPS];
  const bool works = threadIdx.x < WORKERS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, blocks = gridDim.x;
  const int turns = int(ceil_div(tiles - int(blockIdx.x), blocks));
  const auto tile_of = [&](int turn) { return int(blockIdx.x) + turn * blocks; };
  const auto slot_of = [&](int turn) { return memory + turn % SLOTS * PIECES * WORKERS + threadIdx.x; };
  const auto fetch_turn = [&](int turn) {
    if (turn < turns) fetch(slot_of(turn), a, tile_of(turn), n);
    commit_copies();
  };
#pragma unroll 1
  for (int turn = 0; works && turn < AHEAD; ++turn) fetch_turn(turn);
  float earlier = 0.0f;  // the sum of all tiles of earlier turns than the one that is looked at
#pragma unroll 1
  for (int turn = 0; turn < turns + LAG; ++turn) {
    if (works) {
      const int late = turn - LAG;
      fetch_turn(turn + AHEAD);
      wait_for_copies<AHEAD>();
      if (turn < turns) {
        const float sum = measure(slot_of(turn));
        if (lane == 0) of_warps[turn % SLOTS][warp] = sum;
      }
      if (late >= 0) finish(slot_of(late), before[late % 2][warp], out, tile_of(late), n);
    } else {
      const int told = turn - 1, next = turn + 1 - LAG;
      if (told >= 0 && told < turns) {
        const float sum = sum_lanes(lane < WARPS ? of_warps[told % SLOTS][lane] : 0.0f);
        if (lane == 0) publish(states + tile_of(told), sum);
      }
      if (next >= 0 && next < turns) {
        const float2 sums = listen(states + int64_t(next) * blocks, min(blocks, tiles - next * blocks));
        float base = earlier + sums.x;
        for (int w = 0; w < lane && w < WARPS; ++w) base += of_warps[next % SLOTS][w];
        if (lane < WARPS) before[next % 2][lane] = base;
        earlier += sums.y;
      }
    }
    __syncthreads();
  }
}

// `states` has a word for each tile. Blocks wait for each other, so there are no more than the GPU holds at once.
extern "C" int scan(const float* a, int* states, int64_t places, float* out, int64_t n, cudaStream_t stream) {
  const int64_t tiles = ceil_div(n, TILE);
  if (places < tiles || tiles > INT32_MAX / 2) return cudaErrorInvalidValue;
  constexpr int BYTES = SLOTS * PIECES * WORKERS * sizeof(float4);
  int resident = 0;
  TRY(cudaFuncSetAttribute(scan_in_one_pass, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  TRY(count_resident(&resident, scan_in_one_pass, THREADS, BYTES));
  TRY(cudaMemsetAsync(states, 0xff, tiles * sizeof(uint32_t), stream));
  scan_in_one_pass<<<tiles < resident ? tiles : resident, THREADS, BYTES, stream>>>(
      a, reinterpret_cast<uint32_t*>(states), out, n, int(tiles));
  return cudaGetLastError();
}
