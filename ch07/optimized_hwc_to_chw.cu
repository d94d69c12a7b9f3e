// Split interleaved pixels into planes with one thread for eight pixels: it reads their 24 bytes, sorts them by channel
// in registers, and writes 16 bytes to each plane, where the lanes of a warp are neighbours.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int PIXELS = 8;  // of a thread

// Byte `at` of a thread's words, as a float; `at` is known at compile time, so it costs one conversion.
__device__ float byte_at(const uint32_t (&word)[6], int at) { return float(word[at / 4] >> at % 4 * 8 & 0xff); }

__device__ uint32_t pair_of(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return reinterpret_cast<const uint32_t&>(pair);
}

__global__ void __launch_bounds__(THREADS)
    split_eights(const uint8_t* __restrict__ images, const float* __restrict__ scale, const float* __restrict__ shift,
                 __nv_bfloat16* __restrict__ out, int64_t pixels) {
  const int64_t first = (int64_t(blockIdx.x) * THREADS + threadIdx.x) * PIXELS, number = blockIdx.y;
  if (first >= pixels) return;
  const auto* from = reinterpret_cast<const uint2*>(images + (number * pixels + first) * 3);
  auto* to = reinterpret_cast<uint4*>(out) + (number * 3 * pixels + first) / PIXELS;  // in the first of three planes
  const uint2 low = from[0], middle = from[1], high = from[2];
  const uint32_t word[6] = {low.x, low.y, middle.x, middle.y, high.x, high.y};
#pragma unroll
  for (int channel = 0; channel < 3; ++channel) {
    const float by = scale[channel], plus = shift[channel];
    const auto pair = [&](int i) {
      return pair_of(byte_at(word, 6 * i + channel) * by + plus, byte_at(word, 6 * i + 3 + channel) * by + plus);
    };
    to[channel * (pixels / PIXELS)] = {pair(0), pair(1), pair(2), pair(3)};
  }
}

__global__ void __launch_bounds__(THREADS)
    split_singly(const uint8_t* __restrict__ images, const float* __restrict__ scale, const float* __restrict__ shift,
                 __nv_bfloat16* __restrict__ out, int64_t pixels) {
  const int64_t pixel = int64_t(blockIdx.x) * THREADS + threadIdx.x, number = blockIdx.y;
  if (pixel >= pixels) return;
#pragma unroll
  for (int channel = 0; channel < 3; ++channel) {
    const uint8_t value = images[(number * pixels + pixel) * 3 + channel];
    out[(number * 3 + channel) * pixels + pixel] = __float2bfloat16(value * scale[channel] + shift[channel]);
  }
}

extern "C" int split_planes(const uint8_t* images, const float* scale, const float* shift, __nv_bfloat16* out,
                            int64_t count, int64_t pixels, cudaStream_t stream) {
  if (pixels % PIXELS == 0) {
    const dim3 grid(ceil_div(pixels, THREADS * PIXELS), count);
    split_eights<<<grid, THREADS, 0, stream>>>(images, scale, shift, out, pixels);
  } else {  // planes that begin between 16-byte boundaries
    const dim3 grid(ceil_div(pixels, THREADS), count);
    split_singly<<<grid, THREADS, 0, stream>>>(images, scale, shift, out, pixels);
  }
  return cudaGetLastError();
}
