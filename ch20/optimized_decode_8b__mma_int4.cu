// A token through a decoder of four-bit weights; each kernel asks for its first weights before it waits.
#include "ampere.cuh"
#include "grid.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int GROUP = 128;  // weights of a row that share a scale
constexpr int ROWS = 16;    // of a tile
constexpr int SHORT = 4, LONG = 7;  // groups that a warp takes of a row, for short rows and for long ones

enum Kind { STORED, GATED, ADDED };

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float warps[32];
  value = warp_sum(value);
  __syncthreads();  // the last sum may still be read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) total += warps[warp];
  return total;
}

__device__ float wide(float value) { return value; }
__device__ float wide(bf16 value) { return __bfloat162float(value); }

// Eight numbers from a multiple of eight on, with zeros behind the last. What the kernel before wrote is in the L2 cache.
template <typename Number>
__device__ void load_eight(const Number* x, int column, int columns, float (&to)[8]) {
  alignas(16) Number own[8] = {};
  if (column + 8 <= columns) {
#pragma unroll
    for (int i = 0; i < sizeof(own) / sizeof(uint4); ++i) {
      reinterpret_cast<uint4*>(own)[i] = __ldcg(reinterpret_cast<const uint4*>(x + column) + i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (column + i < columns) own[i] = x[column + i];
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = wide(own[i]);
}

// Nibbles i and i + 4 of a word as bf16: 128 + n is 0x4300 with n as the last bits, and the code is n - 8.
__device__ uint32_t widened(uint32_t word, int i) {
  const uint32_t raised = (word >> 4 * i & 0x000f000f) | 0x43004300;
  const __nv_bfloat162 codes =
      __hsub2(reinterpret_cast<const __nv_bfloat162&>(raised), __float2bfloat162_rn(136.0f));
  return reinterpret_cast<const uint32_t&>(codes);
}

// 16 rows of 16 weights times 16 numbers, which all eight columns of the right side have.
__device__ void multiply_add(float (&sum)[4], uint32_t word, uint32_t first, uint32_t second) {
  multiply(sum, {widened(word, 0), widened(word, 1), widened(word, 2), widened(word, 3)}, first, second);
}

// What a warp multiplies of a tile: lane 4 g + t has, of rows g and g + 8, 16 weights of each 64, in the order of mma.
template <int PARTS>
struct Weights {
  uint4 words[PARTS][2];
  uint32_t scales[PARTS];  // of rows g and g + 8

  __device__ void load(const uint4* all_words, const uint32_t* all_scales, int64_t first, int parts) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      words[part][0] = words[part][1] = make_uint4(0, 0, 0, 0);
      scales[part] = 0;
      if (part >= parts) continue;
      words[part][0] = __ldcs(all_words + (first + part) * 64 + lane);
      words[part][1] = __ldcs(all_words + (first + part) * 64 + 32 + lane);
      scales[part] = __ldcs(all_scales + (first + part) * 8 + lane / 4);
    }
  }

  // The products of rows g and g + 8 with x, of which the warp's part begins at `x`.
  __device__ float2 times(const bf16* x) const {
    const int lane = threadIdx.x % 32;
    float2 total = {0.0f, 0.0f};
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto own = reinterpret_cast<const uint4*>(x + part * GROUP + half * 64 + lane % 4 * 16);
        const uint4 a = own[0], b = own[1], word = words[part][half];
        multiply_add(sum, word.x, a.x, a.y);
        multiply_add(sum, word.y, a.z, a.w);
        multiply_add(sum, word.z, b.x, b.y);
        multiply_add(sum, word.w, b.z, b.w);
      }
      const float2 scale = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(scales[part]));
      total.x += scale.x * sum[0];
      total.y += scale.y * sum[2];
    }
    return total;
  }
};

// words [tiles, groups, 2, 32] of 16 bytes and scales [tiles, groups, 8] of two. A gated tile has 8 rows of the gate and
// 8 of up. Where there is a gain, x is normed. Blocks in y take shares of the columns.
template <int PARTS, Kind KIND, typename Input, typename Output>
__global__ void __launch_bounds__(THREADS, 2)
    product(const uint4* words, const uint32_t* scales, const Input* x, const bf16* gain, Output* out, int outputs,
            int columns, int groups, float epsilon) {
  constexpr int SHARE = PARTS * WARPS * GROUP, OUTPUTS = KIND == GATED ? ROWS / 2 : ROWS;
  __shared__ __align__(16) bf16 factors[SHARE];
  __shared__ float partial[2][WARPS][ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = (outputs + OUTPUTS - 1) / OUTPUTS;
  const int first = (blockIdx.y * WARPS + warp) * PARTS;
  const int parts = min(max(groups - first, 0), PARTS);
  start_next();
  Weights<PARTS> own;
  own.load(words, scales, int64_t(blockIdx.x) * groups + first, parts);
  wait_for_last();  // nothing above depends on the kernels before
  float square = 0.0f;
#pragma unroll
  for (int i = threadIdx.x * 8; i < SHARE; i += THREADS * 8) {
    const int column = blockIdx.y * SHARE + i;
    float value[8], factor[8];
    load_eight(x, column, columns, value);
    if (gain) load_eight(gain, column, columns, factor);
    __nv_bfloat162 pairs[4];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      square += value[j] * value[j];
      if (gain) value[j] *= factor[j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = __floats2bfloat162_rn(value[2 * j], value[2 * j + 1]);
    *reinterpret_cast<uint4*>(factors + i) = reinterpret_cast<const uint4&>(pairs);
  }
  const float norm = gain ? rsqrtf(block_sum(square) / columns + epsilon) : 1.0f;
  __syncthreads();
  for (int tile = blockIdx.x, turn = 0; tile < tiles; tile += gridDim.x, turn ^= 1) {
    const int next = tile + gridDim.x;
    Weights<PARTS> following = own;
    if constexpr (PARTS == SHORT) {  // a block has one tile only of long rows
      following.load(words, scales, int64_t(next) * groups + first, next < tiles ? parts : 0);
    }
    const float2 sums = own.times(factors + warp * PARTS * GROUP);
    if (lane % 4 == 0) partial[turn][warp][lane / 4] = sums.x, partial[turn][warp][lane / 4 + 8] = sums.y;
    __syncthreads();
    if (warp == 0) {
      const int row = lane % ROWS;
      float total = 0.0f;
#pragma unroll
      for (int i = 0; i < WARPS; ++i) total += partial[turn][i][row];
      total *= norm;
      const float up = __shfl_down_sync(0xffffffff, total, 8);
      const int output = tile * OUTPUTS + row;
      const bool mine = lane < OUTPUTS && output < outputs;
      if constexpr (KIND == STORED) {
        if (mine) out[output] = total;
      } else if constexpr (KIND == GATED) {
        if (mine) out[output] = __float2bfloat16(total / (1.0f + __expf(-total)) * up);
      } else {
        if (mine) atomicAdd(out + output, total);
      }
    }
    if constexpr (PARTS == LONG) break;
    own = following;
  }
}

// A block a query head, a thread a number: it sees the new token, which its group's first head appends, and the others.
constexpr int WIDEST = 128;
__global__ void __launch_bounds__(WIDEST)
    attend_one(const float* qkv, bf16* keys, bf16* values, const int* position, bf16* out, int group, int capacity,
               int dim, float log_base) {
  const int head = blockIdx.x, of = head / group, heads = gridDim.x, shared = heads / group, half = dim / 2;
  const int at = threadIdx.x, partner = (at + half) % dim;
  const float *q = qkv + head * dim, *k = qkv + (heads + of) * dim, *v = qkv + (heads + shared + of) * dim;
  start_next();
  wait_for_last();
  const int now = *position;
  float query = 0.0f, key = 0.0f, value = 0.0f;
  if (at < dim) {
    float sine, cosine;
    sincospif(0.31830989f * now * exp2f(-2.0f * (at % half) / dim * log_base), &sine, &cosine);
    if (at < half) sine = -sine;
    query = (q[at] * cosine + q[partner] * sine) * rsqrtf(float(dim));
    key = k[at] * cosine + k[partner] * sine;
    value = v[at];
  }
  float peak = -INFINITY, total = 0.0f, sum = 0.0f;
  for (int token = now; token >= 0; --token) {  // the new one is in registers
    const int64_t place = (int64_t(of) * capacity + token) * dim + at;
    if (at < dim && token < now) key = wide(keys[place]), value = wide(values[place]);
    if (at < dim && token == now && head % group == 0) {
      keys[place] = __float2bfloat16(key);
      values[place] = __float2bfloat16(value);
    }
    const float score = block_sum(query * key), higher = fmaxf(peak, score);
    const float shrink = __expf(peak - higher), weight = __expf(score - higher);
    total = total * shrink + weight;
    sum = sum * shrink + weight * value;
    peak = higher;
  }
  if (at < dim) out[head * dim + at] = __float2bfloat16(sum / total);
}

// One block: the likeliest token and the normed state, and the stream of the next token, its embedding.
constexpr int LAST_THREADS = 1024;
__global__ void __launch_bounds__(LAST_THREADS)
    settle_one(const float* logits, float* hidden, const bf16* gain, const bf16* embedding, int64_t* tokens,
               bf16* states, int* position, int vocabulary, int width, float epsilon) {
  __shared__ float values[LAST_THREADS];
  __shared__ int indices[LAST_THREADS];
  const int at = threadIdx.x;
  start_next();
  wait_for_last();
  const int now = *position;
  values[at] = -INFINITY, indices[at] = 0;
#pragma unroll 8
  for (int i = at; i < vocabulary; i += LAST_THREADS) {
    if (logits[i] > values[at]) values[at] = logits[i], indices[at] = i;
  }
  float square = 0.0f;
  for (int i = at; i < width; i += LAST_THREADS) square += hidden[i] * hidden[i];
  const float norm = rsqrtf(block_sum(square) / width + epsilon);
  for (int half = LAST_THREADS / 2; half > 0; half /= 2) {
    if (at < half && values[at + half] > values[at]) values[at] = values[at + half], indices[at] = indices[at + half];
    __syncthreads();
  }
  const int64_t token = indices[0];
  for (int i = at; i < width; i += LAST_THREADS) {
    states[int64_t(now) * width + i] = __float2bfloat16(hidden[i] * norm * wide(gain[i]));
    hidden[i] = wide(embedding[token * width + i]);
  }
  if (at == 0) tokens[now] = token, *position = now + 1;
}

// Launches a kernel that, from Hopper on, may start before the last one of its stream has ended.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, int threads, cudaStream_t stream, Arguments... given) {
  int major = 0;
  TRY(query_device(&major, cudaDevAttrComputeCapabilityMajor));
  return launch_early(major >= 9, kernel, blocks, threads, stream, given...);
}

template <Kind KIND, typename Input, typename Output>
cudaError_t multiply(const int* words, const bf16* scales, const Input* x, const bf16* gain, Output* out, int outputs,
                     int columns, float epsilon, cudaStream_t stream) {
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int tiles = ceil_div(outputs, KIND == GATED ? ROWS / 2 : ROWS), groups = ceil_div(columns, GROUP);
  const auto codes = reinterpret_cast<const uint4*>(words);
  const auto factors = reinterpret_cast<const uint32_t*>(scales);
  if (groups <= SHORT * WARPS) {
    const dim3 blocks(tiles < 2 * multiprocessors ? tiles : 2 * multiprocessors);
    return launch(product<SHORT, KIND, Input, Output>, blocks, THREADS, stream, codes, factors, x, gain, out, outputs,
                  columns, groups, epsilon);
  }
  if constexpr (KIND == ADDED) {
    const dim3 blocks(tiles, ceil_div(groups, LONG * WARPS));
    return launch(product<LONG, KIND, Input, Output>, blocks, THREADS, stream, codes, factors, x, gain, out, outputs,
                  columns, groups, epsilon);
  }
  return cudaErrorInvalidValue;  // the others need whole rows in a block
}

extern "C" int normed_product(const int* words, const __nv_bfloat16* scales, const float* x, const __nv_bfloat16* gain,
                              float* out, int outputs, int columns, float epsilon, cudaStream_t stream) {
  return multiply<STORED>(words, scales, x, gain, out, outputs, columns, epsilon, stream);
}

extern "C" int gated_product(const int* words, const __nv_bfloat16* scales, const float* x, const __nv_bfloat16* gain,
                             __nv_bfloat16* out, int outputs, int columns, float epsilon, cudaStream_t stream) {
  return multiply<GATED>(words, scales, x, gain, out, outputs, columns, epsilon, stream);
}

extern "C" int added_product(const int* words, const __nv_bfloat16* scales, const __nv_bfloat16* x, float* out,
                             int outputs, int columns, cudaStream_t stream) {
  return multiply<ADDED>(words, scales, x, static_cast<const bf16*>(nullptr), out, outputs, columns, 0.0f, stream);
}

extern "C" int attend(const float* qkv, __nv_bfloat16* keys, __nv_bfloat16* values, const int* position,
                      __nv_bfloat16* out, int heads, int group, int capacity, int dim, float log_base,
                      cudaStream_t stream) {
  if (dim > WIDEST) return cudaErrorInvalidValue;
  return launch(attend_one, dim3(heads), WIDEST, stream, qkv, keys, values, position, out, group, capacity, dim,
                log_base);
}

extern "C" int settle(const float* logits, float* hidden, const __nv_bfloat16* gain, const __nv_bfloat16* embedding,
                      int64_t* tokens, __nv_bfloat16* states, int* position, int vocabulary, int width, float epsilon,
                      cudaStream_t stream) {
  return launch(settle_one, dim3(1), LAST_THREADS, stream, logits, hidden, gain, embedding, tokens, states, position,
                vocabulary, width, epsilon);
}
