// Inclusive scan in three kernels: each block scans its tile, one block scans the tiles' sums, and all add them.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PIECES = 8;                   // of four numbers, in each thread
constexpr int TILE = 4 * PIECES * THREADS;  // numbers of a block

// Where this thread's first piece begins. Piece p is 128 p further on: a warp's loads are runs of 512 bytes.
__device__ int64_t place(int64_t tile) {
  return tile * TILE + threadIdx.x / 32 * (TILE / WARPS) + threadIdx.x % 32 * 4;
}

__device__ void load(float4 (&piece)[PIECES], const float* a, int64_t tile, int64_t n) {
  const int64_t first = place(tile);
  if ((tile + 1) * TILE <= n) {
#pragma unroll
    for (int p = 0; p < PIECES; ++p) piece[p] = *reinterpret_cast<const float4*>(a + first + 128 * p);
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
      *reinterpret_cast<float4*>(out + at) = sums;
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

__global__ void __launch_bounds__(THREADS)
    scan_tiles(const float* __restrict__ a, float* __restrict__ totals, float* __restrict__ out, int64_t n) {
  __shared__ float of_warps[WARPS];
  float4 piece[PIECES];
  load(piece, a, blockIdx.x, n);
  const float2 sums = join_warps(scan_warp(piece), of_warps);
  if (threadIdx.x == 0) totals[blockIdx.x] = sums.y;
  store(piece, sums.x, out, blockIdx.x, n);
}

// The sums of all tiles up to each, by one block: there are few.
__global__ void __launch_bounds__(THREADS) scan_totals(float* totals, int64_t count) {
  __shared__ float of_warps[WARPS];
  float4 piece[PIECES];
  float carried = 0.0f;
  for (int64_t tile = 0; tile * TILE < count; ++tile) {
    load(piece, totals, tile, count);
    const float2 sums = join_warps(scan_warp(piece), of_warps);
    store(piece, carried + sums.x, totals, tile, count);
    carried += sums.y;
    __syncthreads();  // all have read of_warps
  }
}

// Each tile but the first is read and written once more.
__global__ void __launch_bounds__(THREADS) add_totals(const float* __restrict__ totals, float* out, int64_t n) {
  float4 piece[PIECES];
  load(piece, out, blockIdx.x + 1, n);
  store(piece, totals[blockIdx.x], out, blockIdx.x + 1, n);
}

extern "C" int scan(const float* a, float* totals, int64_t places, float* out, int64_t n, cudaStream_t stream) {
  const int64_t tiles = ceil_div(n, TILE);
  if (places < tiles) return cudaErrorInvalidValue;
  scan_tiles<<<tiles, THREADS, 0, stream>>>(a, totals, out, n);
  scan_totals<<<1, THREADS, 0, stream>>>(totals, tiles);
  if (tiles > 1) add_totals<<<tiles - 1, THREADS, 0, stream>>>(totals, out, n);
  return cudaGetLastError();
}
