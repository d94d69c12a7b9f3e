// Six-bit weights times up to 16 rows: a warp for 32 outputs, all at once, each with two steps of codes on their way.
#include "kernel.cuh"

#ifndef BLOCKS
#define BLOCKS 4  // on a multiprocessor
#endif
constexpr int WARPS = 4, STEP = 128, ROWS = 16;  // of a block; features of a step; the most of x

// d += a b, of 16 x 16 and 16 x 8 numbers. Lane 4 g + q holds rows g and 8 + g of a, column g of b, rows g and 8 + g of d.
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Past the first cache, which is left to what is read again.
__device__ __forceinline__ uint4 load_once(const uint4* from) {
  uint4 words;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
      : "l"(from));
  return words;
}

__device__ __forceinline__ unsigned word(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// Two codes as fp16 numbers times 2^-12: six parts are whole in a word, two are in the bits that those leave.
__device__ __forceinline__ unsigned weights_of(unsigned a, unsigned b, unsigned c, int part) {
  if (part < 6) return (part % 3 == 0 ? a : part % 3 == 1 ? b : c) << (part < 3 ? 0 : 8) & 0x9F009F00u;
  if (part == 6) {
    return (a << 1 & 0x80008000u) | (a >> 1 & 0x10001000u) | (b >> 3 & 0x0C000C00u) | (c >> 5 & 0x03000300u);
  }
  return (a << 9 & 0x80008000u) | (a << 7 & 0x10001000u) | (b << 5 & 0x0C000C00u) | (c << 3 & 0x03000300u);
}

// Eight neighbours of a row of x from `feature` on; `ALIGNED` where rows begin at 16 bytes.
template <bool ALIGNED>
__device__ __forceinline__ uint4 load(const __half* row, bool present, int feature, int features) {
  uint4 eight = {};
  if (ALIGNED) {
    if (present && feature < features) eight = *reinterpret_cast<const uint4*>(row + feature);
  } else {
    unsigned words[4] = {};
    for (int i = 0; i < 8; ++i) {
      if (present && feature + i < features) words[i / 2] |= unsigned(__half_as_ushort(row[feature + i])) << 16 * (i % 2);
    }
    eight = make_uint4(words[0], words[1], words[2], words[3]);
  }
  return eight;
}

// codes [units, steps, 2 tiles, 3 planes, 32 lanes]: four words, of four groups of 32 features. A tile is 16 outputs.
template <bool ALIGNED>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) linear(
    const __half* __restrict__ x, const uint4* __restrict__ codes, const float* __restrict__ scales,
    __half* __restrict__ out, int rows, int features, int outputs) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, steps = ceil_div(features, STEP);
  const int64_t unit = blockIdx.x * int64_t(WARPS) + threadIdx.x / 32;
  if (unit * 32 >= outputs) return;
  codes += unit * steps * 192 + lane;
  const __half* x_rows[2] = {x + int64_t(min(g, rows - 1)) * features, x + int64_t(min(8 + g, rows - 1)) * features};
  uint4 loaded[2][2][3];
  auto fetch = [&](int step, uint4 (&into)[2][3]) {
    if (step >= steps) return;
#pragma unroll
    for (int i = 0; i < 6; ++i) into[i / 3][i % 3] = load_once(codes + step * int64_t(192) + i * 32);
  };
  float sums[2][2][4] = {};
  auto compute = [&](int step, const uint4 (&words)[2][3]) {
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      uint4 b[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        b[n] = load<ALIGNED>(x_rows[n], 8 * n + g < rows, step * STEP + group * 32 + 8 * q, features);
      }
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const unsigned plane_a = word(words[tile][0], group), plane_b = word(words[tile][1], group),
                       plane_c = word(words[tile][2], group);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          unsigned a[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) a[i] = weights_of(plane_a, plane_b, plane_c, 4 * half + i);
#pragma unroll
          for (int n = 0; n < 2; ++n) multiply(sums[tile][n], a, word(b[n], 2 * half), word(b[n], 2 * half + 1));
        }
      }
    }
  };
  fetch(0, loaded[0]);
  fetch(1, loaded[1]);
  for (int step = 0; step < steps; step += 2) {
    compute(step, loaded[0]);
    fetch(step + 2, loaded[0]);
    if (step + 1 < steps) compute(step + 1, loaded[1]);
    fetch(step + 3, loaded[1]);
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int down = 0; down < 2; ++down) {
      const int64_t output = unit * 32 + tile * 16 + down * 8 + g;
      if (output >= outputs) continue;
      const float scale = scales[output] * 4096.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = i / 2 * 8 + 2 * q + i % 2;
        if (row < rows) out[row * int64_t(outputs) + output] = __float2half(sums[tile][i / 2][2 * down + i % 2] * scale);
      }
    }
  }
}

// x [rows, features], out [rows, outputs]; codes as `linear` describes them.
extern "C" int fp6_linear(const __half* x, const int* codes, const float* scales, __half* out, int rows, int features,
                          int outputs, cudaStream_t stream) {
  if (rows < 1 || rows > ROWS || features < 1 || outputs < 1) return cudaErrorInvalidValue;
  const uint4* words = reinterpret_cast<const uint4*>(codes);
  const int blocks = ceil_div(outputs, 32 * WARPS);
  if (features % 8) {
    linear<false><<<blocks, WARPS * 32, 0, stream>>>(x, words, scales, out, rows, features, outputs);
  } else {
    linear<true><<<blocks, WARPS * 32, 0, stream>>>(x, words, scales, out, rows, features, outputs);
  }
  return cudaGetLastError();
}
