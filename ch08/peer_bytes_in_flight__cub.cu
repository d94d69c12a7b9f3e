// CUB's DeviceTransform: it sizes the loads in flight by the GPU at hand; the row of a code comes from its address.
#include "kernel.cuh"
#include <cub/device/device_transform.cuh>

// The quotient by `columns`, from 2 on, of any 32-bit number: a division each would be slower than the memory.
struct Dequantize {
  const int8_t* codes;
  const float* scales;
  uint64_t reciprocal;  // 2^64 / columns, rounded up

  __device__ __nv_bfloat16 operator()(const int8_t& code) const {
    const uint64_t at = &code - codes;
    return __float2bfloat16(scales[__umul64hi(at, reciprocal)] * code);
  }
};

extern "C" int dequantize_rows(const int8_t* codes, const float* scales, __nv_bfloat16* out, int64_t rows,
                               int64_t columns, cudaStream_t stream) {
  if (columns < 2 || rows * columns >= int64_t(1) << 32) return cudaErrorInvalidValue;
  const Dequantize dequantize{codes, scales, ~uint64_t(0) / columns + 1};
  return cub::DeviceTransform::TransformStableArgumentAddresses(codes, out, rows * columns, dequantize, stream);
}
