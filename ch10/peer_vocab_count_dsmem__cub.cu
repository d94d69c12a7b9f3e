// CUB's DeviceHistogram::HistogramEven over bins of width 1.
#include "kernel.cuh"
#include <cub/device/device_histogram.cuh>

// How much memory the counting needs, to `needed`, which is page-locked.
extern "C" int scratch_bytes(const int* ids, int* counts, int64_t* needed, int64_t n, int vocabulary,
                             cudaStream_t stream) {
  size_t bytes = 0;
  const cudaError_t error =
      cub::DeviceHistogram::HistogramEven(nullptr, bytes, ids, counts, vocabulary + 1, 0, vocabulary, n, stream);
  *needed = bytes;
  return error;
}

extern "C" int count_ids(const int* ids, uint8_t* scratch, int64_t scratch_bytes, int* counts, int64_t n,
                         int vocabulary, cudaStream_t stream) {
  size_t bytes = scratch_bytes;
  return cub::DeviceHistogram::HistogramEven(scratch, bytes, ids, counts, vocabulary + 1, 0, vocabulary, n, stream);
}
