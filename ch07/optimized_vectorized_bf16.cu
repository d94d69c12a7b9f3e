// Add two bf16 arrays in pieces of eight: one instruction moves 16 bytes a lane, 512 bytes a warp.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int PIECES = 2;  // of each array, loaded before the first is added

struct alignas(16) Piece {
  uint32_t pair[4];  // of bf16: the compiler moves these 16 bytes in one access, but four __nv_bfloat162 in four
};

__device__ uint32_t sum(uint32_t x, uint32_t residual) {
  const __nv_bfloat162 both =
      __hadd2(reinterpret_cast<const __nv_bfloat162&>(x), reinterpret_cast<const __nv_bfloat162&>(residual));
  return reinterpret_cast<const uint32_t&>(both);
}

__device__ Piece sum(const Piece& x, const Piece& residual) {
  Piece both;
#pragma unroll
  for (int i = 0; i < 4; ++i) both.pair[i] = sum(x.pair[i], residual.pair[i]);
  return both;
}

__global__ void __launch_bounds__(THREADS)
    add(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ residual,
        __nv_bfloat16* __restrict__ out, int64_t n) {
  const int64_t first = int64_t(blockIdx.x) * PIECES * THREADS + threadIdx.x;
  const auto* from = reinterpret_cast<const Piece*>(x);
  const auto* also = reinterpret_cast<const Piece*>(residual);
  auto* to = reinterpret_cast<Piece*>(out);
  if ((int64_t(blockIdx.x) + 1) * PIECES * THREADS <= n / 8) {
    Piece a[PIECES], b[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      a[p] = from[first + p * THREADS];
      b[p] = also[first + p * THREADS];
    }
#pragma unroll
    for (int p = 0; p < PIECES; ++p) to[first + p * THREADS] = sum(a[p], b[p]);
  } else {  // the last block
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int64_t at = first + p * THREADS;
      if (at < n / 8) to[at] = sum(from[at], also[at]);
    }
    const int64_t last = n / 8 * 8 + threadIdx.x;  // up to seven elements are left over
    if (last < n) out[last] = __hadd(x[last], residual[last]);
  }
}

// One block more than there are full ones takes what is left over.
extern "C" int add_bf16(const __nv_bfloat16* x, const __nv_bfloat16* residual, __nv_bfloat16* out, int64_t n,
                        cudaStream_t stream) {
  add<<<n / (8 * PIECES * THREADS) + 1, THREADS, 0, stream>>>(x, residual, out, n);
  return cudaGetLastError();
}
