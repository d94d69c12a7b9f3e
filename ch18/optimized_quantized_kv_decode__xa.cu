// A new token's attention to an 8-bit cache: each warp takes 16 keys at a time from memory to its tensor core fragments.
#include "ampere.cuh"
#include "special.cuh"

__device__ __forceinline__ unsigned pair(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return reinterpret_cast<const unsigned&>(both);
}

// Two bytes b + 128 to fp16 numbers b: with the byte 0x64 above them they are 1024 + 128 + b.
__device__ __forceinline__ unsigned widened(unsigned shifted, unsigned which) {
  const unsigned large = __byte_perm(shifted, 0x64646464u, which), offset = 0x64806480u;
  const __half2 exact = __hsub2(reinterpret_cast<const __half2&>(large), reinterpret_cast<const __half2&>(offset));
  return reinterpret_cast<const unsigned&>(exact);
}

constexpr unsigned LOWER = 0x4140, UPPER = 0x4342;  // bytes 0 and 1 of a word, or 2 and 3, each below one of 0x64
constexpr int WARPS = 8, TILE = 16, QUERIES = 8;    // of a block; keys of a step; the most of a group

template <int WORDS>
struct alignas(4 * WORDS) Words {
  unsigned of[WORDS];
};

// Numbers of this pass alone: not kept in the L1 cache, and the L2 cache fetches 256 bytes at once.
__device__ __forceinline__ Words<4> load_once(const int8_t* from, Words<4>) {
  Words<4> to;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.of[0]), "=r"(to.of[1]), "=r"(to.of[2]), "=r"(to.of[3])
               : "l"(from));
  return to;
}
__device__ __forceinline__ Words<2> load_once(const int8_t* from, Words<2>) {
  Words<2> to;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.b32 {%0, %1}, [%2];" : "=r"(to.of[0]), "=r"(to.of[1]) : "l"(from));
  return to;
}

// A block for a key head of a request. A product's columns, and its depth, may be in any order: each lane's numbers of
// a fragment are those that lie side by side in memory.
template <typename Element, int WIDTH>
__global__ void __launch_bounds__(WARPS * 32, 2) attend(
    const Element* __restrict__ q, const int8_t* __restrict__ k, const int8_t* __restrict__ v,
    const float* __restrict__ k_scale, const float* __restrict__ v_scale, Element* __restrict__ out, int group,
    int keys, float scale) {
  constexpr int STEPS = WIDTH / 16, CHUNKS = WIDTH / 64, COLUMNS = WIDTH / 8;  // COLUMNS: values of a lane and key
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
  const int64_t head = blockIdx.x;
  k += head * keys * WIDTH, v += head * keys * WIDTH, k_scale += head * keys, v_scale += head * keys;

  unsigned query[STEPS][2];  // row g of the first product; the other eight rows are zero
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    float own[4] = {};
    if (g < group) {
      const Element* from = q + (head * group + g) * WIDTH + step / 4 * 64 + c * 16 + step % 4 * 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) own[i] = float(from[i]);
    }
    query[step][0] = pair(own[0], own[1]);
    query[step][1] = pair(own[2], own[3]);
  }

  Words<4> key[2][CHUNKS];      // of keys 4 (g / 2) + g % 2 and 2 more: columns 64 i + 16 c and on
  Words<COLUMNS / 4> value[4];  // of keys 4 c to 4 c + 3: columns COLUMNS g and on
  float of_key[4], of_value[4];
  auto load_keys = [&](int tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(tile * TILE + g / 2 * 4 + half * 2 + g % 2, keys - 1);
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        key[half][i] = load_once(k + row * WIDTH + i * 64 + c * 16, Words<4>());
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) of_key[i] = k_scale[min(tile * TILE + c * 4 + i, keys - 1)];
  };
  auto load_values = [&](int tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = min(tile * TILE + c * 4 + i, keys - 1);
      value[i] = load_once(v + row * WIDTH + g * COLUMNS, Words<COLUMNS / 4>());
      of_value[i] = v_scale[row];
    }
  };

  float sums[STEPS][4] = {}, total = 0.0f, peak = -INFINITY;  // sums: columns COLUMNS g + 2 step and the next
  load_keys(warp);
  load_values(warp);
  for (int tile = warp; tile * TILE < keys; tile += WARPS) {
    float product[2][4] = {}, weight[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        const unsigned a[4] = {query[step][0], 0, query[step][1], 0};
        const unsigned codes = key[half][step / 4].of[step % 4] ^ 0x80808080u;
        multiply_half(product[half], a, widened(codes, LOWER), widened(codes, UPPER));
      }
    }
    float higher = peak;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool live = tile * TILE + c * 4 + i < keys;
      weight[i] = live ? product[i / 2][i % 2] * (of_key[i] * scale) : -INFINITY;
      higher = fmaxf(higher, weight[i]);
    }
    load_keys(tile + WARPS);
    higher = fmaxf(higher, __shfl_xor_sync(0xffffffff, higher, 1));
    higher = fmaxf(higher, __shfl_xor_sync(0xffffffff, higher, 2));
    if (__any_sync(0xffffffff, higher > peak)) {
      const float shrink = exp2_special(peak - higher);
      const float even = __shfl_sync(0xffffffff, shrink, 8 * c), odd = __shfl_sync(0xffffffff, shrink, 8 * c + 4);
      total *= shrink;
      peak = higher;
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        sums[step][0] *= even, sums[step][1] *= odd, sums[step][2] *= even, sums[step][3] *= odd;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weight[i] = exp2_special(weight[i] - peak);
      total += weight[i];
    }
    const unsigned b0 = pair(weight[0] * of_value[0], weight[1] * of_value[1]);
    const unsigned b1 = pair(weight[2] * of_value[2], weight[3] * of_value[3]);
#pragma unroll
    for (int word = 0; word < COLUMNS / 4; ++word) {
      unsigned codes[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) codes[i] = value[i].of[word] ^ 0x80808080u;
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // columns 0 and 1 of the word, then 2 and 3, each of four keys
        const unsigned first = __byte_perm(codes[0], codes[1], half ? 0x7362 : 0x5140);
        const unsigned second = __byte_perm(codes[2], codes[3], half ? 0x7362 : 0x5140);
        const unsigned a[4] = {widened(first, LOWER), widened(first, UPPER), widened(second, LOWER),
                               widened(second, UPPER)};
        multiply_half(sums[2 * word + half], a, b0, b1);
      }
    }
    load_values(tile + WARPS);
  }

  __shared__ float shared_sums[WARPS][QUERIES][WIDTH], shared_total[WARPS][QUERIES], shared_peak[WARPS][QUERIES];
  total += __shfl_xor_sync(0xffffffff, total, 1);
  total += __shfl_xor_sync(0xffffffff, total, 2);
  if (c == 0) shared_total[warp][g] = total, shared_peak[warp][g] = peak;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shared_sums[warp][2 * c + i % 2][COLUMNS * g + 2 * step + i / 2] = sums[step][i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < group * WIDTH; i += WARPS * 32) {
    const int row = i / WIDTH, column = i % WIDTH;
    float most = -INFINITY, weighted = 0.0f, all = 0.0f;
    for (int w = 0; w < WARPS; ++w) most = fmaxf(most, shared_peak[w][row]);
    for (int w = 0; w < WARPS; ++w) {
      const float share = exp2_special(shared_peak[w][row] - most);
      weighted += share * shared_sums[w][row][column];
      all += share * shared_total[w][row];
    }
    out[head * group * WIDTH + i] = Element(weighted / all);
  }
}

template <typename Element>
int launch(const Element* q, const int8_t* k, const int8_t* v, const float* k_scale, const float* v_scale,
           Element* out, int heads, int group, int keys, int width, float scale, cudaStream_t stream) {
  if (group < 1 || group > QUERIES || keys < 1 || heads < 1) return cudaErrorInvalidValue;
  if (width == 128) {
    attend<Element, 128><<<heads, WARPS * 32, 0, stream>>>(q, k, v, k_scale, v_scale, out, group, keys, scale);
  } else if (width == 64) {
    attend<Element, 64><<<heads, WARPS * 32, 0, stream>>>(q, k, v, k_scale, v_scale, out, group, keys, scale);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

// q and out [heads, group, width], k and v [heads, keys, width], their scales [heads, keys]; heads of all requests.
extern "C" int attend_bfloat16(const __nv_bfloat16* q, const int8_t* k, const int8_t* v, const float* k_scale,
                               const float* v_scale, __nv_bfloat16* out, int heads, int group, int keys, int width,
                               float scale, cudaStream_t stream) {
  return launch(q, k, v, k_scale, v_scale, out, heads, group, keys, width, scale, stream);
}

extern "C" int attend_float16(const __half* q, const int8_t* k, const int8_t* v, const float* k_scale,
                              const float* v_scale, __half* out, int heads, int group, int keys, int width, float scale,
                              cudaStream_t stream) {
  return launch(q, k, v, k_scale, v_scale, out, heads, group, keys, width, scale, stream);
}
