// Inclusive scan in one pass: a block adds what the blocks before it have published, and publishes its own sum.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PIECES = 12;                  // of four numbers, in each thread
constexpr int TILE = 4 * PIECES * THREADS;  // numbers of a block
constexpr int WIDE = 4;                     // states that a lane of the look-back asks for at once

// Where this thread's first piece begins. Piece p is 128 p further on: a warp's loads are runs of 512 bytes.
__device__ int64_t place(int64_t tile) {
  return tile * TILE + threadIdx.x / 32 * (TILE / WARPS) + threadIdx.x % 32 * 4;
}

__device__ void load(float4 (&piece)[PIECES], const float* a, int64_t tile, int64_t n) {
  const int64_t first = place(tile);
  if ((tile + 1) * TILE <= n) {
#pragma unroll
    for (int p = 0; p < PIECES; ++p) piece[p] = __ldcs(reinterpret_cast<const float4*>(a + first + 128 * p));
  } else {  // beyond the end there are zeros
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int64_t at = first + 128 * p;
      piece[p].x = at + 0 < n ? a[at + 0] : 0.0f;
      piece[p].y = at + 1 < n ? a[at + 1] : 0.0f;
      piece[p].z = at + 2 < n ? a[at + 2] : 0.0f;
      piece[p].w = at + 3 < n ? a[at + 3] : 0.0f;
    }
  }
}

__device__ float4 plus(float4 piece, float value) {
  return {piece.x + value, piece.y + value, piece.z + value, piece.w + value};
}

__device__ void store(const float4 (&piece)[PIECES], float before, float* out, int64_t tile, int64_t n) {
  const int64_t first = place(tile);
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int64_t at = first + 128 * p;
    const float4 sums = plus(piece[p], before);
    if (at + 4 <= n) {
      __stcs(reinterpret_cast<float4*>(out + at), sums);
    } else {
      if (at + 0 < n) out[at + 0] = sums.x;
      if (at + 1 < n) out[at + 1] = sums.y;
      if (at + 2 < n) out[at + 2] = sums.z;
    }
  }
}

// Turns a warp's numbers into sums from its first one on; returns the sum of all, in each lane.
__device__ float scan_warp(float4 (&piece)[PIECES]) {
  const int lane = threadIdx.x % 32;
  float upto[PIECES];  // sum of piece p of this lane and those before it
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
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
  float before = 0.0f;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const float lower = __shfl_up_sync(~0u, upto[p], 1);
    piece[p] = plus(piece[p], lane > 0 ? before + lower : before);
    before += __shfl_sync(~0u, upto[p], 31);
  }
  return before;
}

// What the warps of a block must add to their sums (x), and the sum of all (y). A barrier for the whole block.
__device__ float2 join_warps(float of_warp, float (&of_warps)[WARPS]) {
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) of_warps[warp] = of_warp;
  __syncthreads();
  float before = 0.0f, all = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w == warp) before = all;
    all += of_warps[w];
  }
  return {before, all};
}

// The state of a tile is one word, so that its two halves are read as they were written together: in the upper half
// how much is known, in the lower a float. All bits zero: nothing is known yet.
constexpr uint32_t TOTAL = 1;   // the sum of the tile's own numbers
constexpr uint32_t PREFIX = 2;  // the sum of all numbers up to the tile's last

__device__ void publish(uint64_t* state, uint32_t what, float sum) {
  const uint64_t word = uint64_t(what) << 32 | __float_as_uint(sum);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(state), "l"(word) : "memory");
}

__device__ uint64_t read(const uint64_t* state) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(state) : "memory");
  return word;
}

// The look-back: a warp sums the tiles before `tile`, back to the nearest whose prefix is known. Each lane asks for WIDE
// states before it looks at the first, so that a trip to L2 brings 32 x WIDE of them.
__device__ float sum_before(const uint64_t* states, int64_t tile) {
  const int lane = threadIdx.x % 32;
  const uint64_t nothing = uint64_t(PREFIX) << 32;  // before the first tile the sum is zero
  float sum = 0.0f;
  bool found = false;
  for (int64_t first = tile - 1 - lane; !found; first -= 32 * WIDE) {
    uint64_t words[WIDE];
#pragma unroll
    for (int w = 0; w < WIDE; ++w) {
      const int64_t at = first - 32 * w;
      words[w] = at >= 0 ? read(states + at) : nothing;
    }
#pragma unroll
    for (int w = 0; w < WIDE; ++w) {
      if (found) break;
      const int64_t at = first - 32 * w;
      uint64_t word = words[w];
      uint32_t prefixes, needed;
      while (true) {
        prefixes = __ballot_sync(~0u, word >> 32 == PREFIX);
        needed = prefixes ? prefixes ^ (prefixes - 1) : ~0u;  // the lanes up to the nearest prefix
        if ((__ballot_sync(~0u, word >> 32 == 0) & needed) == 0) break;
        if (word >> 32 == 0) word = read(states + at);
      }
      if (needed >> lane & 1) sum += __uint_as_float(uint32_t(word));
      found = prefixes != 0;
    }
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
  return sum;
}

__global__ void __launch_bounds__(THREADS)
    scan_in_one_pass(const float* __restrict__ a, uint64_t* states, uint64_t* ticket, float* __restrict__ out,
                     int64_t n) {
  __shared__ float of_warps[WARPS], of_tiles;
  __shared__ int64_t taken;
  // Blocks number themselves as they begin: whomever a block waits for has begun before it, and so will end.
  if (threadIdx.x == 0) taken = atomicAdd(reinterpret_cast<unsigned long long*>(ticket), 1ull);
  __syncthreads();
  const int64_t tile = taken;

  float4 piece[PIECES];
  load(piece, a, tile, n);
  const float2 sums = join_warps(scan_warp(piece), of_warps);
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) publish(states + tile, tile > 0 ? TOTAL : PREFIX, sums.y);
    const float before = tile > 0 ? sum_before(states, tile) : 0.0f;
    if (threadIdx.x == 0) {
      if (tile > 0) publish(states + tile, PREFIX, before + sums.y);
      of_tiles = before;
    }
  }
  __syncthreads();
  store(piece, of_tiles + sums.x, out, tile, n);
}

// `states` has a word for each tile, and one more for the ticket.
extern "C" int scan(const float* a, int64_t* states, int64_t places, float* out, int64_t n, cudaStream_t stream) {
  const int64_t tiles = ceil_div(n, TILE);
  if (places < tiles + 1) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(states, 0, (tiles + 1) * sizeof(uint64_t), stream));
  auto* words = reinterpret_cast<uint64_t*>(states);
  scan_in_one_pass<<<tiles, THREADS, 0, stream>>>(a, words, words + tiles, out, n);
  return cudaGetLastError();
}
