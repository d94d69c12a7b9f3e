// Unpack weights of a width known to the compiler, one a thread.
#include "kernel.cuh"

constexpr int THREADS = 256;

template <int bits>
__global__ void unpack_one(const uint32_t* __restrict__ words, __nv_bfloat16* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= n) return;
  const int64_t first = i * bits, word = first / 32;
  const int shift = first % 32;
  uint32_t code = words[word] >> shift;
  if (shift + bits > 32) code |= words[word + 1] << (32 - shift);
  code &= (1u << bits) - 1;
  out[i] = __int2bfloat16_rn(int(code) - (1 << (bits - 1)));
}

extern "C" int unpack(const int* words, __nv_bfloat16* out, int64_t n, cudaStream_t stream) {
  unpack_one<3><<<ceil_div(n, THREADS), THREADS, 0, stream>>>(reinterpret_cast<const uint32_t*>(words), out, n);
  return cudaGetLastError();
}
