// Blocks of 16 numbers are rotated by tensor cores, and rounded to FP4 with integer operations on their bits.
#include "ampere.cuh"
#include "special.cuh"

constexpr int BLOCK = 16;                 // numbers that share a scale
constexpr int THREADS = 256, TILES = 4;  // tiles of 16 blocks that a warp loads at once
constexpr float SHARE = 0.167f, LOW = 0.015625f, HIGH = 448.0f;

// Four bytes of `low` and `high`, each named by a digit of `which`; a digit from 8 on repeats a byte's sign instead.
template <unsigned which>
__device__ __forceinline__ unsigned bytes(unsigned low, unsigned high) {
  unsigned chosen;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(chosen) : "r"(low), "r"(high), "n"(which));
  return chosen;
}

// A number's code in bits 24 to 26. Times 2^-126 a size has the bits of its place among the eight sizes of e2m1, and a
// fraction: below 1 it is a denormal, which grows evenly, and above it two places double it. `noise` decides whether
// it goes up.
__device__ __forceinline__ unsigned rounded(float size, unsigned noise) {
  return min((__float_as_uint(size) << 2) + noise, 0x07FFFFFFu);
}

// Of four values of each of four lanes side by side, lane q gets the greatest of the four lanes' value q.
__device__ __forceinline__ float greatest_of_own(const float (&value)[4], int q) {
  const bool odd = q & 1, upper = q & 2;
  const float low = fmaxf(odd ? value[1] : value[0], __shfl_xor_sync(0xffffffff, odd ? value[0] : value[1], 1));
  const float high = fmaxf(odd ? value[3] : value[2], __shfl_xor_sync(0xffffffff, odd ? value[2] : value[3], 1));
  return fmaxf(upper ? high : low, __shfl_xor_sync(0xffffffff, upper ? low : high, 2));
}

// Lane 4 g + q has numbers 4 q to 4 q + 3 of blocks first + 8 i + g, before the rotation and after it: rows and columns
// of the product are permuted so. WHOLE: the matrix has all blocks of the warp, so addresses differ by constants.
template <bool WHOLE>
__device__ __forceinline__ void quantize_tiles(const uint2* __restrict__ x, const unsigned short* __restrict__ rotation,
                                               const unsigned* __restrict__ noise, unsigned short* __restrict__ codes,
                                               uint8_t* __restrict__ scales, int64_t blocks, int64_t first) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int64_t start = (first + g) * 4 + q;
  uint2 numbers[2 * TILES];
  unsigned drawn[2 * TILES], turn[2][2];
#pragma unroll
  for (int i = 0; i < 2 * TILES; ++i) {
    const int64_t at = WHOLE ? start + 32 * i : min(first + 8 * i + g, blocks - 1) * 4 + q;
    numbers[i] = __ldcs(x + at);
    drawn[i] = __ldcs(noise + at);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const unsigned short* column = rotation + 4 * (g / 2) + 2 * half + g % 2;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int row = 4 * q + 2 * pair;
      turn[half][pair] = column[row * BLOCK] | unsigned(column[(row + 1) * BLOCK]) << 16;
    }
  }
#pragma unroll
  for (int part = 0; part < TILES / 2; ++part) {  // four blocks of a lane
    float r[4][4], most[4];
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const uint2 upper = numbers[4 * part + 2 * tile], lower = numbers[4 * part + 2 * tile + 1];
      const unsigned a[4] = {upper.x, lower.x, upper.y, lower.y};
      float left[4] = {}, right[4] = {};
      multiply(left, a, turn[0]);
      multiply(right, a, turn[1]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float (&own)[4] = r[2 * tile + half];
        own[0] = left[2 * half], own[1] = left[2 * half + 1], own[2] = right[2 * half], own[3] = right[2 * half + 1];
        most[2 * tile + half] = fmaxf(fmaxf(fabsf(own[0]), fabsf(own[1])), fmaxf(fabsf(own[2]), fabsf(own[3])));
      }
    }
    // Each of the four lanes finds one block's scale, and then they exchange factors.
    const unsigned bits = __float_as_uint(fminf(fmaxf(greatest_of_own(most, q) * SHARE, LOW), HIGH));
    const unsigned scale = (bits + 0x7FFFF + (bits >> 20 & 1)) >> 20;  // to nearest even: e4m3 keeps three bits
    const float factor_of_own = reciprocal_special(__uint_as_float(scale << 20)) * 0x1p-126f;
    const int64_t own_block = first + part * 32 + q * 8 + g;
    if (WHOLE || own_block < blocks) scales[own_block] = scale - (127 - 7) * 8;  // the exponent's bias is 7 in e4m3
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = 4 * part + k;
      const float factor = __shfl_sync(0xffffffff, factor_of_own, k, 4);
      // A byte of noise n stands for (n + 0.5) / 256 of a place.
      const unsigned with_noise[4] = {
          bytes<0x4054>(drawn[i], 0x00008000), bytes<0x4154>(drawn[i], 0x00008000),
          bytes<0x4254>(drawn[i], 0x00008000), bytes<0x4354>(drawn[i], 0x00008000)};
      unsigned sized[4], code[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float size = r[k][n] * factor;
        sized[n] = __float_as_uint(size);
        code[n] = rounded(size, with_noise[n]);
      }
      const unsigned low = bytes<0x73>(code[0], code[2]) | (bytes<0xFB>(sized[0], sized[2]) & 0x0808);
      const unsigned high = (bytes<0x73>(code[1], code[3]) << 4) | (bytes<0xFB>(sized[1], sized[3]) & 0x8080);
      const int64_t at = WHOLE ? start + 32 * i : (first + 8 * i + g) * 4 + q;
      if (WHOLE || first + 8 * i + g < blocks) __stcs(codes + at, static_cast<unsigned short>(low | high));
    }
  }
}

// A warp takes 16 blocks at a time, and loads all that it takes before it computes.
__global__ void __launch_bounds__(THREADS, 5) quantize(
    const uint2* __restrict__ x, const unsigned short* __restrict__ rotation, const unsigned* __restrict__ noise,
    unsigned short* __restrict__ codes, uint8_t* __restrict__ scales, int64_t blocks) {
  const int64_t first = (blockIdx.x * int64_t(THREADS / 32) + threadIdx.x / 32) * 16 * TILES;
  if (first + 16 * TILES <= blocks) {
    quantize_tiles<true>(x, rotation, noise, codes, scales, blocks, first);
  } else if (first < blocks) {
    quantize_tiles<false>(x, rotation, noise, codes, scales, blocks, first);
  }
}

// x [blocks, 16], rotation [16, 16], noise [blocks, 16], codes [blocks, 8], scales [blocks].
extern "C" int quantize_fp4(const __nv_bfloat16* x, const __nv_bfloat16* rotation, const uint8_t* noise, uint8_t* codes,
                            uint8_t* scales, int64_t blocks, cudaStream_t stream) {
  if (blocks < 1) return cudaErrorInvalidValue;
  quantize<<<ceil_div(blocks, 16 * TILES * (THREADS / 32)), THREADS, 0, stream>>>(
      reinterpret_cast<const uint2*>(x), reinterpret_cast<const unsigned short*>(rotation),
      reinterpret_cast<const unsigned*>(noise), reinterpret_cast<unsigned short*>(codes), scales, blocks);
  return cudaGetLastError();
}
