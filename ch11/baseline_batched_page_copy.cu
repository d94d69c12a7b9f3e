// Pages to page-locked host memory by a copy call for each: the host makes thousands of calls, and DMA starts as often.
#include "kernel.cuh"

// table is the address, in host memory, of `count` pages to read and `count` slots to write; a page has `width` numbers.
extern "C" int copy_pages(const half* pool, half* out, int64_t table, int64_t count, int64_t width,
                          cudaStream_t stream) {
  const int64_t *pages = reinterpret_cast<const int64_t*>(table), *slots = pages + count;
  for (int64_t i = 0; i < count; ++i) {
    TRY(cudaMemcpyAsync(out + slots[i] * width, pool + pages[i] * width, width * sizeof(half),
                        cudaMemcpyDeviceToHost, stream));
  }
  return cudaSuccess;
}
