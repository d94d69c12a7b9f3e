// Gathers pages: a block for each, whose threads carry it through registers in pieces of 16 bytes.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int PIECE = 8;    // elements: 16 bytes
constexpr int AT_ONCE = 4;  // loads of a thread on their way, if the page has so many

__global__ void __launch_bounds__(THREADS)
    gather_pages(const __nv_bfloat16* __restrict__ pool, const int64_t* __restrict__ ids,
                 __nv_bfloat16* __restrict__ out, int64_t page) {
  const auto* from = reinterpret_cast<const uint4*>(pool + ids[blockIdx.x] * page);
  auto* to = reinterpret_cast<uint4*>(out + blockIdx.x * page);
  const int64_t pieces = page / PIECE;
  for (int64_t start = threadIdx.x; start < pieces; start += AT_ONCE * THREADS) {
    uint4 piece[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (start + i * THREADS < pieces) piece[i] = from[start + i * THREADS];
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (start + i * THREADS < pieces) to[start + i * THREADS] = piece[i];
    }
  }
}

extern "C" int gather(const __nv_bfloat16* pool, const int64_t* ids, __nv_bfloat16* out, int64_t pages, int64_t page,
                      cudaStream_t stream) {
  if (page % PIECE) return cudaErrorInvalidValue;
  gather_pages<<<pages, THREADS, 0, stream>>>(pool, ids, out, page);
  return cudaGetLastError();
}
