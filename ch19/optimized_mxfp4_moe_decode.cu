// Rows of FP4 experts times a few tokens: a block for 32 rows, whose warps share out the features. It loads its first
// weights before it waits for the last kernel.
#include "ampere.cuh"
#include "grid.cuh"

constexpr int WARPS = 8;   // of a block
constexpr int DEPTH = 3;   // steps of 64 features that a warp loads at once
constexpr int TOKENS = 8;  // columns of a product

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

// Sums of 32 rows (two tiles of 16) x 8 tokens, for one expert. `codes` [steps, 2, 32 lanes]: four words of a lane are
// its fragments of four products, eight codes each, of fp16 weights times 2^-14. `scales` [steps, 8, 2]: of rows g and
// 8 + g, the exponents of both groups of 32 features, plus 14.
__device__ __forceinline__ void accumulate(float (&sums)[2][4], const uint4* __restrict__ codes,
                                           const uint2* __restrict__ scales, const __half* __restrict__ x, int tokens,
                                           int features, int steps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  const __half* row = x + int64_t(min(g, tokens - 1)) * features + 8 * q;
  for (int first = warp; first < steps; first += DEPTH * WARPS) {
    uint4 loaded[DEPTH][2];
    uint2 exponents[DEPTH];
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      const int64_t step = min(first + i * WARPS, steps - 1);
      loaded[i][0] = load_once(codes + step * 64 + lane);
      loaded[i][1] = load_once(codes + step * 64 + 32 + lane);
      exponents[i] = scales[step * 8 + g];
    }
    if (first == warp) wait_for_last();  // nothing above depends on the kernels before
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      const int step = first + i * WARPS;
      if (step >= steps) break;  // the same for a whole warp
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        uint4 b = {};
        const int feature = step * 64 + group * 32;
        if (g < tokens && feature + 8 * q < features) b = *reinterpret_cast<const uint4*>(row + feature);
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          float product[4] = {};
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const unsigned w = word(loaded[i][tile], 2 * group + half);
            const unsigned a[4] = {w & 0x8E008E00u, w << 3 & 0x8E008E00u,
                                   (w << 1 & 0x80008000u) | (w << 6 & 0x0E000E00u),
                                   (w << 2 & 0x80008000u) | (w << 9 & 0x0E000E00u)};
            multiply_half(product, a, word(b, 2 * half), word(b, 2 * half + 1));
          }
          const unsigned four = tile ? exponents[i].y : exponents[i].x;
          const float upper = __uint_as_float((four >> 8 * group & 0xFF) << 23);
          const float lower = __uint_as_float((four >> (16 + 8 * group) & 0xFF) << 23);
          sums[tile][0] += upper * product[0];
          sums[tile][1] += upper * product[1];
          sums[tile][2] += lower * product[2];
          sums[tile][3] += lower * product[3];
        }
      }
    }
  }
}

__device__ __forceinline__ bool chosen(const int64_t* __restrict__ ids, int choices, int expert) {
  bool found = false;
  for (int i = threadIdx.x % 32; i < choices; i += 32) found |= ids[i] == expert;
  return __any_sync(0xffffffff, found);
}

// Of a block's warps; the sum that a thread then holds is of row thread / 8 of both tiles, and token thread % 8.
__device__ __forceinline__ float total(const float (&sums)[2][4], float (*parts)[2][16][TOKENS]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) parts[warp][tile][g + i / 2 * 8][2 * q + i % 2] = sums[tile][i];
  }
  __syncthreads();
  float all = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) all += (&parts[w][0][0][0])[threadIdx.x];
  return all;
}

// hidden [experts, tokens, wide] = silu(gate) * up; a block's tiles are 16 rows of the gate, and the same of up.
__global__ void __launch_bounds__(WARPS * 32, 3) activate(
    const __half* __restrict__ x, const uint4* __restrict__ codes, const uint2* __restrict__ scales,
    const int64_t* __restrict__ ids, __half* __restrict__ hidden, int choices, int tokens, int width, int wide) {
  __shared__ float parts[WARPS][2][16][TOKENS], gates[16 * TOKENS];
  const int expert = blockIdx.y, steps = ceil_div(width, 64);
  start_next();
  if (!chosen(ids, choices, expert)) return;
  const int64_t unit = expert * int64_t(gridDim.x) + blockIdx.x;
  float sums[2][4] = {};
  accumulate(sums, codes + unit * steps * 64, scales + unit * steps * 8, x, tokens, width, steps);
  const float mine = total(sums, parts);
  if (threadIdx.x < 16 * TOKENS) gates[threadIdx.x] = mine / (1.0f + __expf(-mine));
  __syncthreads();
  const int i = threadIdx.x - 16 * TOKENS, row = i / TOKENS, token = i % TOKENS;
  if (i >= 0 && token < tokens) {
    hidden[(expert * int64_t(tokens) + token) * wide + blockIdx.x * 16 + row] = __float2half(gates[i] * mine);
  }
}

// answers [experts, tokens, width]; a block's tiles are 32 neighbouring rows.
__global__ void __launch_bounds__(WARPS * 32, 3) project(
    const __half* __restrict__ hidden, const uint4* __restrict__ codes, const uint2* __restrict__ scales,
    const int64_t* __restrict__ ids, __half* __restrict__ answers, int choices, int tokens, int width, int wide) {
  __shared__ float parts[WARPS][2][16][TOKENS];
  const int expert = blockIdx.y, steps = ceil_div(wide, 64);
  start_next();
  if (!chosen(ids, choices, expert)) return;
  const int64_t unit = expert * int64_t(gridDim.x) + blockIdx.x;
  float sums[2][4] = {};
  accumulate(sums, codes + unit * steps * 64, scales + unit * steps * 8, hidden + expert * int64_t(tokens) * wide, tokens,
             wide, steps);
  const float mine = total(sums, parts);
  const int row = threadIdx.x / TOKENS, token = threadIdx.x % TOKENS;
  if (token < tokens) {
    answers[(expert * int64_t(tokens) + token) * width + blockIdx.x * 32 + row] = __float2half(mine);
  }
}

__global__ void combine(const __half* __restrict__ answers, const int64_t* __restrict__ ids,
                        const __half* __restrict__ shares, __half* __restrict__ out, int top, int tokens, int width) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, token = blockIdx.y;
  wait_for_last();
  if (column >= width) return;
  float sum = 0.0f;
  for (int choice = token * top; choice < (token + 1) * top; ++choice) {
    sum += __half2float(shares[choice]) * __half2float(answers[(ids[choice] * tokens + token) * width + column]);
  }
  out[token * int64_t(width) + column] = __float2half(sum);
}

// x and out [tokens, width]; ids and shares [tokens, top]; experts' codes and scales as the kernels describe them.
extern "C" int mixture(const __half* x, const int64_t* ids, const __half* shares, const int* up_codes,
                       const int* up_scales, const int* down_codes, const int* down_scales, __half* hidden,
                       __half* answers, __half* out, int tokens, int top, int experts, int width, int wide,
                       cudaStream_t stream) {
  if (tokens < 1 || tokens > TOKENS || width % 32 || wide % 16) return cudaErrorInvalidValue;
  int major = 0;
  TRY(query_device(&major, cudaDevAttrComputeCapabilityMajor));
  const bool early = major >= 9;  // the first kernel waits for all that comes before the step
  TRY(launch_early(false, activate, dim3(wide / 16, experts), WARPS * 32, stream, x,
                   reinterpret_cast<const uint4*>(up_codes), reinterpret_cast<const uint2*>(up_scales), ids, hidden,
                   tokens * top, tokens, width, wide));
  TRY(launch_early(early, project, dim3(width / 32, experts), WARPS * 32, stream, hidden,
                   reinterpret_cast<const uint4*>(down_codes), reinterpret_cast<const uint2*>(down_scales), ids,
                   answers, tokens * top, tokens, width, wide));
  return launch_early(early, combine, dim3(ceil_div(width, 128), tokens), 128, stream, answers, ids, shares, out, top,
                      tokens, width);
}
