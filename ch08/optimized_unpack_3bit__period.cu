// Unpack 32 weights a thread, after which the pattern of words and shifts repeats: unrolled, all of it is constant.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int PERIOD = 32;  // weights, as many words as a weight has bits

// A bf16 of 128 + code has the code in its lowest bits, up to 7 of them, so no conversion is needed.
template <int bits>
__device__ __nv_bfloat16 value_of(uint32_t code) {
  return __hsub(__ushort_as_bfloat16(uint16_t(0x4300 | code)), __float2bfloat16(128 + (1 << (bits - 1))));
}

template <int bits>
__device__ uint32_t code_of(const uint32_t (&word)[bits], int i) {
  const int first = i * bits, shift = first % 32;
  uint32_t code = word[first / 32] >> shift;
  if (shift + bits > 32) code |= word[first / 32 + 1] << (32 - shift);
  return code & ((1u << bits) - 1);
}

struct alignas(16) Eight {
  __nv_bfloat16 at[8];
};

template <int bits>
__global__ void __launch_bounds__(THREADS)
    unpack_period(const uint32_t* __restrict__ words, __nv_bfloat16* __restrict__ out, int64_t n, int64_t count) {
  const int64_t period = int64_t(blockIdx.x) * THREADS + threadIdx.x, first = period * PERIOD;
  if (first >= n) return;
  uint32_t word[bits];
#pragma unroll
  for (int i = 0; i < bits; ++i) word[i] = period * bits + i < count ? words[period * bits + i] : 0;
  if (first + PERIOD <= n) {
#pragma unroll
    for (int piece = 0; piece < PERIOD / 8; ++piece) {
      Eight eight;
#pragma unroll
      for (int i = 0; i < 8; ++i) eight.at[i] = value_of<bits>(code_of<bits>(word, 8 * piece + i));
      reinterpret_cast<Eight*>(out + first)[piece] = eight;
    }
  } else {  // the last weights
#pragma unroll
    for (int i = 0; i < PERIOD; ++i) {
      if (first + i < n) out[first + i] = value_of<bits>(code_of<bits>(word, i));
    }
  }
}

extern "C" int unpack(const int* words, __nv_bfloat16* out, int64_t n, cudaStream_t stream) {
  constexpr int bits = 3;
  unpack_period<bits><<<ceil_div(n, THREADS * PERIOD), THREADS, 0, stream>>>(
      reinterpret_cast<const uint32_t*>(words), out, n, ceil_div(n * bits, 32));
  return cudaGetLastError();
}
