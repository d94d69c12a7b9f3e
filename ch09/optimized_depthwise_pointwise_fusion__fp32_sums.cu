// Filtered pixels go to the product by shared memory alone; the filter widens each value and adds up in fp32.
// targets: sm_90a (wgmma exists on Hopper alone)
// spills: the nine taps of four channels and the sums of a tile fill 168 registers; 56 bytes of the rest have no room
#include <type_traits>

#include "wgmma.cuh"

// wgmma's product of 64 x 128 numbers and 16 deep, for both types of 16 bits: the proof at `test` size is in fp16.
#define EIGHT(sum, i) \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]), "+f"(sum[i + 5]), \
      "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define PRODUCT(type) \
  asm volatile( \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
      "%64, %65, add, 1, 1, 0, 0;\n}" \
      : EIGHT(sum, 0), EIGHT(sum, 8), EIGHT(sum, 16), EIGHT(sum, 24), EIGHT(sum, 32), EIGHT(sum, 40), \
        EIGHT(sum, 48), EIGHT(sum, 56) \
      : "l"(a), "l"(b), "r"(int(add)))

// sum[64, 128] += a[64, 16] b[128, 16]^T; unless `add`, the sums begin anew.
template <typename Element>
__device__ inline void multiply_as(float (&sum)[64], uint64_t a, uint64_t b, bool add) {
  if constexpr (std::is_same_v<Element, __half>) {
    PRODUCT("f16");
  } else {
    PRODUCT("bf16");
  }
}

#undef EIGHT
#undef PRODUCT

// Rows of 64 elements of either type are the same to a descriptor.
template <typename Element>
__device__ inline uint64_t descriptor_of(const Element* tile) {
  return descriptor(reinterpret_cast<const bf16*>(tile));
}

// Two neighbours, the first in the low half, to floats and back.
template <typename Element>
__device__ inline float2 unpack(uint32_t pair) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  } else {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000)};
  }
}
template <typename Element>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<Element, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

constexpr int DEPTH = 128;              // channels and results, at most: two rows of a tile
constexpr int SPAN = 8, LINES = 8;      // a tile is 8 columns by 8 rows of pixels
constexpr int ROWS = 28;                // of the image, which a block walks down
constexpr int WIDE = 4;                 // channels of a lane
constexpr int AHEAD = 4;                // rows whose way to the L2 cache has begun
constexpr int BLOCKS = 3;               // a multiprocessor
constexpr int TILE = SPAN * LINES;

template <typename Element>
struct Shared {
  Element pixels[DEPTH / ROW][TILE * ROW];  // what was filtered, and later the results
  Element mix[DEPTH / ROW][DEPTH * ROW];    // transposed: [results, channels]
};

// Four channels of the pixels left of, at, and right of two columns of one row; zeros beyond the image.
struct Line {
  uint2 at[4];
};
__device__ inline Line load_line(const uint2* first, int stride, bool inside, bool has_left, bool has_next,
                                 bool has_right) {
  const uint2 zero = {0, 0};
  return {inside && has_left ? __ldg(first - stride) : zero, inside ? __ldg(first) : zero,
          inside && has_next ? __ldg(first + stride) : zero, inside && has_right ? __ldg(first + 2 * stride) : zero};
}

template <typename Element>
__device__ inline void widen(float (&to)[WIDE], uint2 from) {
  const float2 low = unpack<Element>(from.x), high = unpack<Element>(from.y);
  to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
}

// The tile of filtered pixels times the weights, and its way out over the tile's own place.
template <typename Element>
__device__ void mix_tile(Shared<Element>& shared, Element* out, int lines, int columns, int side, int results) {
  uint32_t thread = threadIdx.x;
  asm volatile("" : "+r"(thread));  // the addresses below are not to be kept in registers while pixels are filtered
  publish_tile();
  __syncthreads();
  float sum[64];
  hold(sum);
  fence_products();
#pragma unroll
  for (int half = 0; half < DEPTH / ROW; ++half) {
    const uint64_t a = descriptor_of(shared.pixels[half]), b = descriptor_of(shared.mix[half]);
#pragma unroll
    for (int k = 0; k < ROW / 16; ++k) multiply_as<Element>(sum, a + 2 * k, b + 2 * k, half + k > 0);
  }
  commit_products();
  finish_products(sum);
  __syncthreads();  // all have read the pixels
  char* const staged = reinterpret_cast<char*>(shared.pixels);
  constexpr int HALF = sizeof(shared.pixels[0]), LINE = SPAN * ROW * sizeof(Element);
  const uint32_t of_eight = thread % 32 / 4;
  char* const mine = staged + thread / 32 * 2 * LINE + of_eight * 128 + thread % 4 * 4;
#pragma unroll
  for (int j = 0; j < DEPTH / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<uint32_t*>(mine + (j % 8 ^ of_eight) * 16 + j / 8 * HALF + i * LINE) =
          pack<Element>(sum[4 * j + 2 * i], sum[4 * j + 2 * i + 1]);
    }
  }
  __syncthreads();
  const int column = thread / 16, piece = thread % 16;  // a line a turn
  Element* to = out + column * results + piece * 8;
  const char* const from = staged + piece / 8 * HALF + swizzled(column, piece % 8);
  const bool inside = column < columns && piece * 8 < results;
#pragma unroll
  for (int i = 0; i < LINES; ++i, to += side * results) {
    if (inside && i < lines) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + i * LINE);
  }
  __syncthreads();  // the place is free
}

template <typename Element, bool FULL>
__global__ void __launch_bounds__(GROUP_THREADS, BLOCKS)
    filter_and_mix(const Element* __restrict__ x, const Element* __restrict__ depthwise,
                   const Element* __restrict__ pointwise, Element* __restrict__ out, int images, int side,
                   int some_channels, int some_results) {
  const int channels = FULL ? DEPTH : some_channels, results = FULL ? DEPTH : some_results;
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<Element>& shared = *reinterpret_cast<Shared<Element>*>(memory);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  {  // a thread for each channel
    const int channel = threadIdx.x;
    char* const tile = reinterpret_cast<char*>(shared.mix[channel / ROW]);
#pragma unroll
    for (int n = 0; n < DEPTH; n += 8) {
      uint4 eight = {0, 0, 0, 0};
      if (channel < channels && n < results) {
        eight = *reinterpret_cast<const uint4*>(pointwise + int64_t(channel) * results + n);
      }
      const Element* const each = reinterpret_cast<const Element*>(&eight);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        *reinterpret_cast<Element*>(tile + swizzled(n + i, channel % ROW / 8) + channel % 8 * 2) = each[i];
      }
    }
  }
  const bool real = lane * WIDE < channels;
  float taps[9][WIDE] = {};
  if (real) {
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      widen<Element>(taps[i], *reinterpret_cast<const uint2*>(depthwise + i * channels + lane * WIDE));
    }
  }
  // Of tile's row m, whose m % 8 is the column, this thread writes 8 bytes: it always has the same two columns.
  char* mine[2];
  for (int c = 0; c < 2; ++c) {
    mine[c] = reinterpret_cast<char*>(shared.pixels[lane / 16]) + swizzled(2 * warp + c, lane % 16 / 2) + lane % 2 * 8;
  }
  const int stride = channels / WIDE;

  const int spans = ceil_div(side, SPAN), parts = ceil_div(side, ROWS);
  for (int task = blockIdx.x; task < images * parts * spans; task += gridDim.x) {
    const int left = task % spans * SPAN, top = task / spans % parts * ROWS, bottom = min(top + ROWS, side);
    const int64_t image = int64_t(task / spans / parts) * side * side;
    const int first = left + 2 * warp;
    const bool inside = real && first < side, has_left = first > 0, has_next = first + 1 < side;
    const bool has_right = first + 2 < side;
    const uint2* from = reinterpret_cast<const uint2*>(x + (image + int64_t(top - 1) * side + first) * channels) + lane;
    const int last = min(bottom, side - 1);
    float done[2][WIDE] = {}, here[2][WIDE] = {};
    Line next = load_line(from, stride, inside && top > 0, has_left, has_next, has_right);
#pragma unroll 2
    for (int y = top - 1; y <= bottom; ++y) {
      const Line line = next;
      from += side * stride;
      next = load_line(from, stride, inside && y < last, has_left, has_next, has_right);
      if (inside && y + AHEAD < side) {
        const uint2* const far = from + (AHEAD - 1) * side * stride + (has_next ? lane : 0);  // 16 bytes a lane: both
        asm volatile("prefetch.global.L2 [%0];" ::"l"(far));
      }
      float pixel[4][WIDE];
#pragma unroll
      for (int i = 0; i < 4; ++i) widen<Element>(pixel[i], line.at[i]);
      // A row ends the result of the row above, goes into its own, and begins that of the row below.
      // The first two end rows that are not this block's: their places are written again before they are read.
      const int ended = y - 1 - top, slot = ended & LINES - 1;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float total[WIDE];
#pragma unroll
        for (int w = 0; w < WIDE; ++w) {
          const float a = pixel[c][w], b = pixel[c + 1][w], d = pixel[c + 2][w];
          total[w] = fmaf(d, taps[8][w], fmaf(b, taps[7][w], fmaf(a, taps[6][w], done[c][w])));
          done[c][w] = fmaf(d, taps[5][w], fmaf(b, taps[4][w], fmaf(a, taps[3][w], here[c][w])));
          here[c][w] = fmaf(d, taps[2][w], fmaf(b, taps[1][w], a * taps[0][w]));
        }
        *reinterpret_cast<uint2*>(mine[c] + slot * SPAN * 128) = {pack<Element>(total[0], total[1]),
                                                                  pack<Element>(total[2], total[3])};
      }
      if (ended >= 0 && (slot == LINES - 1 || y == bottom)) {
        const int begun = ended - slot;
        Element* const to = out + (image + int64_t(top + begun) * side + left) * results;
        mix_tile(shared, to, slot + 1, side - left, side, results);
      }
    }
  }
}

template <typename Element>
int launch(const Element* x, const Element* depthwise, const Element* pointwise, Element* out, int images, int side,
           int channels, int results, cudaStream_t stream) {
  if (channels > DEPTH || results > DEPTH || channels % 8 || results % 8) return cudaErrorInvalidValue;
  const bool full = channels == DEPTH && results == DEPTH;
  const auto kernel = full ? filter_and_mix<Element, true> : filter_and_mix<Element, false>;
  constexpr int BYTES = sizeof(Shared<Element>);
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int resident = 0;
  TRY(count_resident(&resident, kernel, GROUP_THREADS, BYTES));
  const int64_t tasks = images * ceil_div(side, ROWS) * ceil_div(side, SPAN);
  kernel<<<tasks < resident ? tasks : resident, GROUP_THREADS, BYTES, stream>>>(x, depthwise, pointwise, out, images,
                                                                                side, channels, results);
  return cudaGetLastError();
}

extern "C" int filter_and_mix_bf16(const __nv_bfloat16* x, const __nv_bfloat16* depthwise,
                                   const __nv_bfloat16* pointwise, __nv_bfloat16* out, int images, int side,
                                   int channels, int results, cudaStream_t stream) {
  return launch(x, depthwise, pointwise, out, images, side, channels, results, stream);
}

extern "C" int filter_and_mix_fp16(const __half* x, const __half* depthwise, const __half* pointwise, __half* out,
                                   int images, int side, int channels, int results, cudaStream_t stream) {
  return launch(x, depthwise, pointwise, out, images, side, channels, results, stream);
}
