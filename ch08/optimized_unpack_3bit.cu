// Unpack eight weights at a time. They begin at a whole byte, so a funnel shift by a constant of the thread takes their
// 24 bits out of two words, and what follows is unrolled with constant shifts. A warp stores 512 bytes in a row.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int BITS = 3;
constexpr int PIECES = 4;  // of eight weights; a thread asks for all of them before it uses one

// Two neighbours of the lowest bits. A bf16 of 128 + code has the code in its lowest bits, so no conversion is needed.
__device__ uint32_t pair_of(uint32_t codes) {
  constexpr uint32_t MASK = (1 << BITS) - 1, BIAS = 0x43004300;  // 128 twice
  const uint32_t pair = (codes & MASK) | (codes << (16 - BITS) & MASK << 16) | BIAS;
  const __nv_bfloat162 values =
      __hsub2(reinterpret_cast<const __nv_bfloat162&>(pair), __float2bfloat162_rn(128 + (1 << (BITS - 1))));
  return reinterpret_cast<const uint32_t&>(values);
}

__device__ uint4 eight_of(uint32_t codes) {
  return {pair_of(codes), pair_of(codes >> 2 * BITS), pair_of(codes >> 4 * BITS), pair_of(codes >> 6 * BITS)};
}

// Piece p is bytes 3 p to 3 p + 2. A block begins at a multiple of four pieces, which are three words.
__global__ void __launch_bounds__(THREADS)
    unpack_eight(const uint32_t* __restrict__ words, __nv_bfloat16* __restrict__ out, int64_t n, uint32_t last) {
  const int64_t first = int64_t(blockIdx.x) * PIECES * THREADS;
  const uint32_t start = first / 4 * BITS, shift = 8 * (BITS * threadIdx.x % 4);
  uint32_t low[PIECES], high[PIECES];
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const uint32_t word = start + BITS * (k * THREADS + threadIdx.x) / 4;
    low[k] = words[min(word, last)];
    high[k] = words[min(word + 1, last)];
  }
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int64_t at = 8 * (first + k * THREADS + threadIdx.x);
    const uint4 eight = eight_of(__funnelshift_r(low[k], high[k], shift));
    if (at + 8 <= n) *reinterpret_cast<uint4*>(out + at) = eight;
  }
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < n % 8) {  // the last weights, which are no whole piece
    const int64_t at = n / 8 * 8 + threadIdx.x;
    const uint32_t word = at * BITS / 32;
    const uint32_t pair = pair_of(__funnelshift_r(words[word], words[min(word + 1, last)], at * BITS % 32));
    out[at] = reinterpret_cast<const __nv_bfloat162&>(pair).x;
  }
}

extern "C" int unpack(const int* words, __nv_bfloat16* out, int64_t n, cudaStream_t stream) {
  const int64_t count = ceil_div(n * BITS, 32);
  if (count > int64_t(1) << 31) return cudaErrorInvalidValue;  // words are numbered by 32 bits
  unpack_eight<<<ceil_div(n, 8 * PIECES * THREADS), THREADS, 0, stream>>>(reinterpret_cast<const uint32_t*>(words), out,
                                                                          n, uint32_t(count - 1));
  return cudaGetLastError();
}
