// CUB's DeviceHistogram::HistogramEven over 256 bins of width 1: privatised bins, runs of equal codes counted together.
#include "kernel.cuh"
#include <cub/device/device_histogram.cuh>

// Fails with cudaErrorInvalidValue where `scratch_bytes` are too few.
extern "C" int histogram(const uint8_t* codes, uint8_t* scratch, int64_t scratch_bytes, int* bins, int64_t n,
                         cudaStream_t stream) {
  size_t bytes = scratch_bytes;
  return cub::DeviceHistogram::HistogramEven(scratch, bytes, codes, bins, 257, 0, 256, n, stream);
}
