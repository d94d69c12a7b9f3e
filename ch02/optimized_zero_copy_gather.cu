// A warp fetches a row of a table that stays in host memory: its loads cross the bus, and nothing else does.
#include "kernel.cuh"

constexpr int THREADS = 256;

// `words` are those of a row. The host must not write the table meanwhile.
template <typename Word>
__global__ void gather_rows(const Word* __restrict__ table, const int* __restrict__ ids, Word* __restrict__ out,
                            int64_t count, int64_t words) {
  const int64_t row = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
  if (row >= count) return;
  const Word* from = table + ids[row] * words;
  for (int64_t i = threadIdx.x % 32; i < words; i += 32) out[row * words + i] = from[i];
}

// table[ids] of rows of `width` floats; `table` may be page-locked, which the GPU then reads at the same address.
extern "C" int gather(const float* table, const int* ids, float* out, int64_t count, int64_t width,
                      cudaStream_t stream) {
  const int64_t blocks = ceil_div(count * 32, THREADS);
  if (width % 4 == 0) {  // 32 lanes x 16 bytes: a row of 512 bytes is four requests of a whole line each
    gather_rows<<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(table), ids,
                                                reinterpret_cast<float4*>(out), count, width / 4);
  } else {
    gather_rows<<<blocks, THREADS, 0, stream>>>(table, ids, out, count, width);
  }
  return cudaGetLastError();
}
