// CUB's DeviceSelect::If, which also keeps the order.
#include "kernel.cuh"
#include <cub/device/device_select.cuh>

struct Positive {
  __device__ bool operator()(float x) const { return x > 0.0f; }
};

// Fails with cudaErrorInvalidValue where `scratch_bytes` are too few. `out` must have room for all that is kept.
extern "C" int filter(const float* x, uint8_t* scratch, int64_t scratch_bytes, float* out, int* count, int64_t n,
                      cudaStream_t stream) {
  size_t bytes = scratch_bytes;
  return cub::DeviceSelect::If(scratch, bytes, x, out, count, n, Positive{}, stream);
}
