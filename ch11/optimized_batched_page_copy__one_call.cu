// Pages to page-locked host memory by one call, which gives the driver a list of thousands of copies.
#include "kernel.cuh"
#include <vector>

// table is the address, in host memory, of `count` pages to read and `count` slots to write; a page has `width` numbers.
extern "C" int copy_pages(const half* pool, half* out, int64_t table, int64_t count, int64_t width,
                          cudaStream_t stream) {
  static cudaStream_t side;  // the call refuses the null stream, which the caller's may be
  static cudaEvent_t begun, ended;
  static std::vector<void*> to;
  static std::vector<const void*> from;
  static std::vector<size_t> sizes;
  if (!ended) {
    TRY(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    TRY(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    TRY(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming));
  }
  const int64_t *pages = reinterpret_cast<const int64_t*>(table), *slots = pages + count;
  to.resize(count);
  from.resize(count);
  sizes.assign(count, width * sizeof(half));
  for (int64_t i = 0; i < count; ++i) {
    to[i] = out + slots[i] * width;
    from[i] = pool + pages[i] * width;
  }
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;  // the attributes are those of all copies from this one on
  TRY(cudaEventRecord(begun, stream));
  TRY(cudaStreamWaitEvent(side, begun, 0));
  TRY(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes, &first, 1, side));
  TRY(cudaEventRecord(ended, side));
  return cudaStreamWaitEvent(stream, ended, 0);
}
