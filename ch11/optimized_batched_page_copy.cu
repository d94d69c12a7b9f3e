// Pages to page-locked host memory by one kernel: a block for each page, whose stores cross the bus.
#include "kernel.cuh"

constexpr int THREADS = 256;

// `words` are those of a page.
template <typename Word>
__global__ void __launch_bounds__(THREADS) copy(const Word* __restrict__ pool, Word* __restrict__ out,
                                                const int64_t* __restrict__ table, int64_t count, int64_t words) {
  const Word* from = pool + table[blockIdx.x] * words;
  Word* to = out + table[count + blockIdx.x] * words;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < words; i += THREADS) to[i] = from[i];
}

// table [2, count]: pages to read, and slots to write; a page has `width` numbers.
extern "C" int copy_pages(const half* pool, half* out, const int64_t* table, int64_t count, int64_t width,
                          cudaStream_t stream) {
  if (width % 8 == 0) {  // 32 lanes x 16 bytes: whole lines cross the bus
    copy<<<count, THREADS, 0, stream>>>(reinterpret_cast<const uint4*>(pool), reinterpret_cast<uint4*>(out), table,
                                        count, width / 8);
  } else {
    copy<<<count, THREADS, 0, stream>>>(pool, out, table, count, width);
  }
  return cudaGetLastError();
}
