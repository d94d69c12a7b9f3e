// A token through a decoder with weights of four bits, which tensor cores multiply; each kernel starts early, and loads
// its first weights before it waits for the one before it.
#include "kernel.cuh"

using bf16 = __nv_bfloat16;

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int GROUP = 128;  // weights of a row that share a scale
constexpr int ROWS = 16;    // of a tile
constexpr int SHORT = 4, LONG = 7;  // groups that a warp takes of a row, for short rows and for long ones

enum Kind { STORED, GATED, ADDED, LARGEST };

// The next kernel may start, and load what does not depend on this one.
__device__ void start_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns when all kernels before have ended, and what they wrote can be seen.
__device__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float warps[32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) total += warps[warp];
  return total;
}

__device__ float wide(float value) { return value; }
__device__ float wide(bf16 value) { return __bfloat162float(value); }

// Nibbles i and i + 4 of a word as bf16: 128 + n is 0x4300 with n as the last bits, and the code is n - 8.
__device__ uint32_t widened(uint32_t word, int i) {
  const uint32_t raised = (word >> 4 * i & 0x000f000f) | 0x43004300;
  const __nv_bfloat162 codes =
      __hsub2(reinterpret_cast<const __nv_bfloat162&>(raised), __float2bfloat162_rn(136.0f));
  return reinterpret_cast<const uint32_t&>(codes);
}

// 16 rows of 16 weights times 16 numbers, which all eight columns of the right side have.
__device__ void multiply_add(float (&sum)[4], uint32_t word, uint32_t first, uint32_t second) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(widened(word, 0)), "r"(widened(word, 1)), "r"(widened(word, 2)), "r"(widened(word, 3)), "r"(first),
        "r"(second));
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

// A key that grows with the value, and of equal values is largest for the first index.
__device__ unsigned long long ranked(float value, int index) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - index);
}

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
#pragma unroll 8
  for (int i = threadIdx.x; i < SHARE; i += THREADS) {
    const int column = blockIdx.y * SHARE + i;
    float value = column < columns ? wide(x[column]) : 0.0f;
    square += value * value;
    if (gain && column < columns) value *= wide(gain[column]);
    factors[i] = __float2bfloat16(value);
  }
  const float norm = gain ? rsqrtf(block_sum(square) / columns + epsilon) : 1.0f;
  __syncthreads();
  unsigned long long largest = 0;
  int turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= 1) {
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
      } else if constexpr (KIND == ADDED) {
        if (mine) atomicAdd(out + output, total);
      } else {
        const unsigned long long rank = mine ? ranked(total, output) : 0;
        largest = rank > largest ? rank : largest;
      }
    }
    if constexpr (PARTS == LONG) break;
    own = following;
  }
  if constexpr (KIND == LARGEST) {
    if (warp > 0) return;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const unsigned long long other = __shfl_xor_sync(0xffffffff, largest, lanes);
      largest = other > largest ? other : largest;
    }
    if (lane == 0) atomicMax(out, largest);
  }
}

// A block a query head: it sees the new token, which the first head of its group appends, and the earlier ones.
constexpr int HEAD_THREADS = 128, HEAD_WARPS = HEAD_THREADS / 32;
__global__ void __launch_bounds__(HEAD_THREADS)
    attend_one(const float* qkv, bf16* keys, bf16* values, const int* position, bf16* out, int group, int capacity,
               int dim, float log_base) {
  __shared__ float query[HEAD_THREADS], key[HEAD_THREADS], value[HEAD_THREADS];
  __shared__ float peaks[HEAD_WARPS], totals[HEAD_WARPS], sums[HEAD_WARPS][HEAD_THREADS];
  const int head = blockIdx.x, of = head / group, heads = gridDim.x, shared = heads / group, at = threadIdx.x;
  const int lane = at % 32, warp = at / 32;
  start_next();
  wait_for_last();
  const int now = *position;
  if (at < dim) {
    const int half = dim / 2, partner = (at + half) % dim;
    float sine, cosine;
    sincosf(now * exp2f(-2.0f * (at % half) / dim * log_base), &sine, &cosine);
    if (at < half) sine = -sine;
    const float *q = qkv + head * dim, *k = qkv + (heads + of) * dim, *v = qkv + (heads + shared + of) * dim;
    query[at] = (q[at] * cosine + q[partner] * sine) * rsqrtf(float(dim));
    key[at] = k[at] * cosine + k[partner] * sine;
    value[at] = v[at];
    if (head % group == 0) {
      keys[(int64_t(of) * capacity + now) * dim + at] = __float2bfloat16(key[at]);
      values[(int64_t(of) * capacity + now) * dim + at] = __float2bfloat16(value[at]);
    }
  }
  __syncthreads();
  float peak = -INFINITY, total = 0.0f, sum[HEAD_THREADS / 32] = {};
  for (int token = warp; token <= now; token += HEAD_WARPS) {
    const int64_t row = (int64_t(of) * capacity + token) * dim;
    float score = 0.0f;
    for (int i = lane; i < dim; i += 32) score += query[i] * (token == now ? key[i] : wide(keys[row + i]));
    score = warp_sum(score);
    const float higher = fmaxf(peak, score), shrink = __expf(peak - higher), weight = __expf(score - higher);
    total = total * shrink + weight;
#pragma unroll
    for (int j = 0; j < HEAD_THREADS / 32; ++j) {
      const int i = lane + 32 * j;
      if (i < dim) sum[j] = sum[j] * shrink + weight * (token == now ? value[i] : wide(values[row + i]));
    }
    peak = higher;
  }
  if (lane == 0) peaks[warp] = peak, totals[warp] = total;
#pragma unroll
  for (int j = 0; j < HEAD_THREADS / 32; ++j) sums[warp][lane + 32 * j] = sum[j];
  __syncthreads();
  if (at >= dim) return;
  float most = peaks[0];
  for (int i = 1; i < HEAD_WARPS; ++i) most = fmaxf(most, peaks[i]);
  float whole = 0.0f, attended = 0.0f;
  for (int i = 0; i < HEAD_WARPS; ++i) {
    const float weight = __expf(peaks[i] - most);
    whole += weight * totals[i];
    attended += weight * sums[i][at];
  }
  out[head * dim + at] = __float2bfloat16(attended / whole);
}

// One block: the token of the largest rank and the normed state, and the stream of the next token, its embedding.
constexpr int LAST_THREADS = 1024;
__global__ void __launch_bounds__(LAST_THREADS)
    settle_one(unsigned long long* largest, float* stream, const bf16* gain, const bf16* embedding, int64_t* tokens,
               bf16* states, int* position, int width, float epsilon) {
  start_next();
  wait_for_last();
  const int64_t token = 0xffffffffu - uint32_t(*largest);
  const int now = *position;
  float square = 0.0f;
  for (int i = threadIdx.x; i < width; i += LAST_THREADS) square += stream[i] * stream[i];
  const float norm = rsqrtf(block_sum(square) / width + epsilon);
  for (int i = threadIdx.x; i < width; i += LAST_THREADS) {
    states[int64_t(now) * width + i] = __float2bfloat16(stream[i] * norm * wide(gain[i]));
    stream[i] = wide(embedding[token * width + i]);
  }
  if (threadIdx.x > 0) return;  // all have read what changes below: block_sum has a barrier
  tokens[now] = token;
  *position = now + 1;
  *largest = 0;
}

// Launches a kernel that, from Hopper on, may start before the last one of its stream has ended.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, int threads, cudaStream_t stream, Arguments... given) {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = major >= 9 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

template <Kind KIND, typename Input, typename Output>
cudaError_t multiply(const int* words, const bf16* scales, const Input* x, const bf16* gain, Output* out, int outputs,
                     int columns, float epsilon, cudaStream_t stream) {
  int device = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error) return error;
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

extern "C" int largest_product(const int* words, const __nv_bfloat16* scales, const float* x,
                               const __nv_bfloat16* gain, int64_t* largest, int outputs, int columns, float epsilon,
                               cudaStream_t stream) {
  const auto rank = reinterpret_cast<unsigned long long*>(largest);
  return multiply<LARGEST>(words, scales, x, gain, rank, outputs, columns, epsilon, stream);
}

extern "C" int attend(const float* qkv, __nv_bfloat16* keys, __nv_bfloat16* values, const int* position,
                      __nv_bfloat16* out, int heads, int group, int capacity, int dim, float log_base,
                      cudaStream_t stream) {
  if (dim > HEAD_THREADS) return cudaErrorInvalidValue;
  return launch(attend_one, dim3(heads), HEAD_THREADS, stream, qkv, keys, values, position, out, group, capacity, dim,
                log_base);
}

extern "C" int settle(int64_t* largest, float* stream_of_token, const __nv_bfloat16* gain,
                      const __nv_bfloat16* embedding, int64_t* tokens, __nv_bfloat16* states, int* position, int width,
                      float epsilon, cudaStream_t stream) {
  const auto rank = reinterpret_cast<unsigned long long*>(largest);
  return launch(settle_one, dim3(1), LAST_THREADS, stream, rank, stream_of_token, gain, embedding, tokens, states,
                position, width, epsilon);
}
