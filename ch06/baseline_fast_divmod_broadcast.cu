// Scale the channels of x: each element finds its channel by a 64-bit division and a 64-bit remainder.
#include "kernel.cuh"

constexpr int THREADS = 256;

// Element i is of channel (i / area) % channels. A thread takes four neighbours, which may be of two channels or more.
__global__ void __launch_bounds__(THREADS)
    multiply(const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ out, int64_t n,
             int64_t channels, int64_t area) {
  const int64_t i = 4 * (int64_t(blockIdx.x) * THREADS + threadIdx.x);
  if (i + 3 < n) {
    float4 four = *reinterpret_cast<const float4*>(x + i);
    four.x *= scale[(i + 0) / area % channels];
    four.y *= scale[(i + 1) / area % channels];
    four.z *= scale[(i + 2) / area % channels];
    four.w *= scale[(i + 3) / area % channels];
    *reinterpret_cast<float4*>(out + i) = four;
  } else {  // up to three elements are left over
    for (int64_t k = i; k < n; ++k) out[k] = x[k] * scale[k / area % channels];
  }
}

extern "C" int scale_channels(const float* x, const float* scale, float* out, int64_t n, int64_t channels, int64_t area,
                              cudaStream_t stream) {
  multiply<<<ceil_div(n, 4 * THREADS), THREADS, 0, stream>>>(x, scale, out, n, channels, area);
  return cudaGetLastError();
}
