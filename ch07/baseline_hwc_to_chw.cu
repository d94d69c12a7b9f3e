// Split interleaved pixels into planes with one thread for each number of the result: it picks a byte from every third.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    split(const uint8_t* __restrict__ image, const float* __restrict__ scale, const float* __restrict__ shift,
          __nv_bfloat16* __restrict__ out, int64_t pixels) {
  const int64_t pixel = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  const int channel = blockIdx.y;
  const int64_t number = blockIdx.z;  // of the image
  if (pixel < pixels) {
    const uint8_t value = image[(number * pixels + pixel) * 3 + channel];
    out[(number * 3 + channel) * pixels + pixel] = __float2bfloat16(value * scale[channel] + shift[channel]);
  }
}

extern "C" int split_planes(const uint8_t* images, const float* scale, const float* shift, __nv_bfloat16* out,
                            int64_t count, int64_t pixels, cudaStream_t stream) {
  split<<<dim3(ceil_div(pixels, THREADS), 3, count), THREADS, 0, stream>>>(images, scale, shift, out, pixels);
  return cudaGetLastError();
}
