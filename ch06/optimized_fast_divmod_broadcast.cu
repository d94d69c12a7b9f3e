// Scale the channels of x: division by a number that the host knows is a multiplication, an addition and a shift.
#include "kernel.cuh"

constexpr int THREADS = 256;

// Division of 0 <= i < 2^31 by a divisor in the same range: the high half of a product with a rounded-up reciprocal.
// (T. Granlund, P. L. Montgomery: Division by Invariant Integers using Multiplication, 1994.)
struct Divisor {
  unsigned divisor, factor, shift;

  explicit Divisor(int64_t by) : divisor(by), shift(0) {
    while (int64_t(1) << shift < by) ++shift;
    factor = ((uint64_t(1) << 32) * ((uint64_t(1) << shift) - divisor)) / divisor + 1;
  }
  __device__ unsigned quotient(unsigned i) const { return (__umulhi(i, factor) + i) >> shift; }
  __device__ unsigned remainder(unsigned i) const { return i - quotient(i) * divisor; }
};

// Element i is of channel (i / area) % channels. A thread takes four neighbours, which may be of two channels or more.
__global__ void __launch_bounds__(THREADS)
    multiply(const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ out, unsigned n,
             Divisor channels, Divisor area) {
  const unsigned i = 4 * (blockIdx.x * THREADS + threadIdx.x);
  if (i + 3 < n) {
    float4 four = *reinterpret_cast<const float4*>(x + i);
    four.x *= scale[channels.remainder(area.quotient(i + 0))];
    four.y *= scale[channels.remainder(area.quotient(i + 1))];
    four.z *= scale[channels.remainder(area.quotient(i + 2))];
    four.w *= scale[channels.remainder(area.quotient(i + 3))];
    *reinterpret_cast<float4*>(out + i) = four;
  } else {  // up to three elements are left over
    for (unsigned k = i; k < n; ++k) out[k] = x[k] * scale[channels.remainder(area.quotient(k))];
  }
}

extern "C" int scale_channels(const float* x, const float* scale, float* out, int64_t n, int64_t channels, int64_t area,
                              cudaStream_t stream) {
  if (n >= int64_t(1) << 31) return cudaErrorInvalidValue;  // indices have 31 bits: split a larger array
  multiply<<<ceil_div(n, 4 * THREADS), THREADS, 0, stream>>>(x, scale, out, n, Divisor(channels), Divisor(area));
  return cudaGetLastError();
}
