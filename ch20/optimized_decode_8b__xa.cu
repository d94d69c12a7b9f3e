// A token through a decoder of four-bit weights. Two kernels fit a multiprocessor, so one fills its ring while the last
// still runs.
#include "ampere.cuh"
#include "grid.cuh"

constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int GROUP = 128;  // weights of a row that share a scale
constexpr int ROWS = 16, PARTS = 4;  // of a tile; groups that a warp takes of a row
constexpr int SHARE = PARTS * WARPS * GROUP;  // columns of a block, at most: a longer row is shared out
constexpr int PIECE = PARTS * (1024 + 32);    // bytes of a warp's part of a tile: words, then scales
enum Kind { STORED, GATED, ADDED, CHOSEN };   // of a normed x; silu(one) * other of two; a sum with what is there; argmax

__device__ float warp_sum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float warps[32];
  value = warp_sum(value);
  __syncthreads();  // the last sum may still be read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0.0f);
}

__device__ float wide(bf16 value) { return __bfloat162float(value); }

// Nibbles i and i + 4 of a word as fp16: 1024 + n is 0x6400 with n as the last bits, and 1024 + 16 n has n before them,
// which spares a shift. So rows g + 8 are 16 times too large. The code is n - 8.
__device__ uint32_t widened(uint32_t word, int i) {
  return (word >> 8 * (i / 2) & (i % 2 ? 0x00f000f0 : 0x000f000f)) | 0x64006400;
}

// What a warp multiplies of each tile. Lane 4 g + t has, of rows g and g + 8, 16 weights of each 64, in the order of mma.
template <int STAGES>
struct Ring {
  unsigned char* pieces;  // STAGES of them, of this warp alone
  const uint4* words;
  const uint32_t* scales;
  int tiles, groups, first, parts;

  __device__ void fill(int stage, int tile) const {
    const int lane = threadIdx.x % 32;
    if (tile < tiles) {
      const int64_t group = int64_t(tile) * groups + first;
      for (int part = 0; part < PARTS; ++part) {
        if (part >= parts) continue;
        unsigned char* const to = pieces + stage * PIECE + part * 1024 + lane * 16;
        copy_async<16>(to, words + (group + part) * 64 + lane);
        copy_async<16>(to + 512, words + (group + part) * 64 + 32 + lane);
      }
      if (lane < parts * 8) copy_async<4>(pieces + stage * PIECE + PARTS * 1024 + lane * 4, scales + group * 8 + lane);
    }
    commit_copies();
  }

  __device__ void begin() const {
    for (int i = threadIdx.x % 32; i < STAGES * PIECE / 4; i += 32) {
      if (parts < PARTS) reinterpret_cast<uint32_t*>(pieces)[i] = 0;  // groups that are not there add nothing
    }
    __syncwarp();
    for (int stage = 0; stage < STAGES; ++stage) fill(stage, blockIdx.x + stage * gridDim.x);
  }

  // Asks for `count` more tiles to be brought to the L2 cache.
  __device__ void fetch(int count) const {
#if __CUDA_ARCH__ >= 900
    for (int i = STAGES; i < STAGES + count; ++i) {
      const int tile = blockIdx.x + i * gridDim.x;
      if (threadIdx.x % 32 || tile >= tiles || !parts) return;
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(words + (int64_t(tile) * groups + first) * 64),
                   "r"(parts * 1024)
                   : "memory");
    }
#endif
  }

  // The products of rows g and g + 8 with x, of which the warp's part begins at `x`, and has these sums.
  __device__ float2 times(int stage, const half* x, const float (&x_sums)[PARTS]) const {
    const int lane = threadIdx.x % 32;
    const unsigned char* const piece = pieces + stage * PIECE;
    float sum[PARTS][4];
    for (int part = 0; part < PARTS; ++part) {
      sum[part][0] = -1032.0f * x_sums[part], sum[part][2] = -1152.0f * x_sums[part];
      sum[part][1] = sum[part][3] = 0.0f;
    }
    for (int half = 0; half < 2; ++half) {
      uint4 four[PARTS], numbers[PARTS][2];
      for (int part = 0; part < PARTS; ++part) {
        const uint4* const of_x = reinterpret_cast<const uint4*>(x + part * GROUP + half * 64 + lane % 4 * 16);
        numbers[part][0] = of_x[0], numbers[part][1] = of_x[1];
        four[part] = *reinterpret_cast<const uint4*>(piece + part * 1024 + half * 512 + lane * 16);
      }
      for (int i = 0; i < 4; ++i) {  // 16 rows of 16 weights times 16 numbers: all eight columns are alike
        for (int part = 0; part < PARTS; ++part) {  // neighbouring instructions do not wait for each other
          const uint32_t word = reinterpret_cast<const uint32_t*>(&four[part])[i];
          const uint32_t* const pair = reinterpret_cast<const uint32_t*>(numbers[part]) + 2 * i;
          multiply_half(sum[part], {widened(word, 0), widened(word, 1), widened(word, 2), widened(word, 3)}, pair[0], pair[1]);
        }
      }
    }
    float2 total = {0.0f, 0.0f};
    for (int part = 0; part < PARTS; ++part) {
      const auto scale = *reinterpret_cast<const __nv_bfloat162*>(piece + PARTS * 1024 + part * 32 + lane / 4 * 4);
      total.x += wide(scale.x) * sum[part][0], total.y += wide(scale.y) * sum[part][2] * 0.0625f;
    }
    return total;
  }
};

// The greater a logit, the greater this key; of equal ones the first is the greatest.
__device__ uint64_t ranked(float logit, int index) {
  const uint32_t bits = __float_as_uint(logit);
  return uint64_t(bits >> 31 ? ~bits : bits | 0x80000000) << 32 | ~uint32_t(index);
}

// words [tiles, groups, 2, 32] of 16 bytes and scales [tiles, groups, 8] of two. A gated tile has 8 rows of the gate, 8
// of up. Blocks in y take `share` groups of columns. x is filled up with zeros to a multiple of eight.
template <Kind KIND, int STAGES>
__global__ void __launch_bounds__(THREADS, 2)
    product(const uint4* words, const uint32_t* scales, const float* x, const bf16* gain, float* out,
            unsigned long long* best, int outputs, int columns, int share, float epsilon) {
  constexpr int OUTPUTS = KIND == GATED ? ROWS / 2 : ROWS, TURNS = (SHARE + THREADS * 8 - 1) / (THREADS * 8);
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float partial[2][WARPS][ROWS];
  half* const factors = reinterpret_cast<half*>(memory + WARPS * STAGES * PIECE);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, groups = (columns + GROUP - 1) / GROUP;
  const int tiles = (outputs + OUTPUTS - 1) / OUTPUTS, first = blockIdx.y * share + warp * PARTS;
  const int parts = min(max(min(groups, int(blockIdx.y + 1) * share) - first, 0), PARTS);
  start_next();
  const Ring<STAGES> ring = {memory + warp * STAGES * PIECE, words, scales, tiles, groups, first, parts};
  ring.begin();
  ring.fetch(3);
  alignas(16) bf16 gains[TURNS][8] = {};
  for (int turn = 0; turn < TURNS; ++turn) {
    const int column = (turn * THREADS + threadIdx.x) * 8;
    if (KIND == ADDED || column >= columns) continue;
    *reinterpret_cast<uint4*>(gains[turn]) = *reinterpret_cast<const uint4*>(gain + column);
  }
  wait_for_last();  // nothing above depends on the kernels before
  float square = 0.0f;
  float4 values[TURNS][2] = {};
  for (int turn = 0; turn < TURNS; ++turn) {  // what the kernel before wrote is in the L2 cache
    const int i = (turn * THREADS + threadIdx.x) * 8, column = blockIdx.y * share * GROUP + i;
    if (i >= share * GROUP || column >= columns) continue;
    values[turn][0] = __ldcg(reinterpret_cast<const float4*>(x + column));
    values[turn][1] = __ldcg(reinterpret_cast<const float4*>(x + column) + 1);
  }
  for (int turn = 0; turn < TURNS; ++turn) {
    alignas(16) half made[8];
    for (int j = 0; j < 8; ++j) {
      const float number = reinterpret_cast<const float*>(values[turn])[j];
      square += number * number;
      made[j] = __float2half(KIND == ADDED ? number : number * wide(gains[turn][j]));
    }
    *reinterpret_cast<uint4*>(factors + (turn * THREADS + threadIdx.x) * 8) = *reinterpret_cast<const uint4*>(made);
  }
  const float norm = KIND == ADDED ? 1.0f : rsqrtf(block_sum(square) / columns + epsilon);
  __syncthreads();
  float x_sums[PARTS];
  for (int part = 0; part < PARTS; ++part) {
    const half* const four = factors + (warp * PARTS + part) * GROUP + lane * 4;
    x_sums[part] = warp_sum((__half2float(four[0]) + __half2float(four[1])) + (__half2float(four[2]) + __half2float(four[3])));
  }
  int stage = 0, turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
    wait_for_copies<STAGES - 1>();
    __syncwarp();
    const float2 sums = ring.times(stage, factors + warp * PARTS * GROUP, x_sums);
    __syncwarp();
    ring.fill(stage, tile + STAGES * gridDim.x);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    float(*const all)[ROWS] = partial[turn % 2];
    if (lane % 4 == 0) all[warp][lane / 4] = sums.x, all[warp][lane / 4 + 8] = sums.y;
    __syncthreads();
    if (warp != turn % WARPS) continue;  // warps take turns in adding up
    float total = 0.0f;
    for (int i = 0; i < WARPS; ++i) total += norm * all[i][lane % ROWS];
    const float up = __shfl_down_sync(0xffffffff, total, 8);
    const int output = tile * OUTPUTS + lane;
    const bool mine = lane < OUTPUTS && output < outputs;
    if (mine && KIND == STORED) out[output] = total;
    if (mine && KIND == GATED) out[output] = total / (1.0f + __expf(-total)) * up;
    if (mine && KIND == ADDED) atomicAdd(out + output, total);
    if (KIND == CHOSEN) {
      unsigned long long key = mine ? ranked(total, output) : 0;
      for (int lanes = 8; lanes > 0; lanes /= 2) key = max(key, __shfl_xor_sync(0xffffffff, key, lanes));
      if (lane == 0) atomicMax(best, key);
    }
  }
  wait_for_all_copies();
}

constexpr int QUERIES = 4;      // query heads that share keys
constexpr int READERS = 128;    // threads of a block of attention
constexpr int TOKENS = 16;      // of the cache, that a warp takes at once
constexpr int STEP = READERS / 32 * TOKENS, DEPTH = 3;  // tokens of a block; such loads on their way or in use
constexpr int SPLITS = 64;      // shares of the cache, at most
constexpr int WIDEST = 128, RECORD = WIDEST + 2;  // numbers of a head; with their greatest score and total
constexpr float NOTHING = -1e30f;  // a score below all others

// Of one number, the sum over a query's shares, and the greatest score and the total beside it.
struct Sum {
  float peak = NOTHING, total = 0.0f, number = 0.0f;
  __device__ Sum(const float* records, int count, int at) {
#pragma unroll 8
    for (int i = 0; i < count; ++i) peak = fmaxf(peak, records[i * QUERIES * RECORD + WIDEST]);
#pragma unroll 8
    for (int i = 0; i < count; ++i, records += QUERIES * RECORD) {
      const float weight = exp2f(records[WIDEST] - peak);
      total += weight * records[WIDEST + 1], number += weight * records[at];
    }
  }
};

__device__ uint32_t paired(float left, float right) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(left, right);
  return reinterpret_cast<const uint32_t&>(pair);
}

// A block takes a share of the cache for the query heads of one key head (blockIdx.y), the last share with the tokens
// from `context` on, the newest of which it appends. A key head's last block to come adds up all shares. Lane 4 g + t
// has keys of tokens g and g + 8, and values of tokens 2 t, 2 t + 1 and eight further on: numbers 8 g to 8 g + 7 of 64.
template <int DIM>
__global__ void __launch_bounds__(READERS, 2)
    attend_some(const float* qkv, bf16* keys, bf16* values, const int64_t* position, float* out, float* shares,
                int* arrived, int group, int capacity, int context, float log_base) {
  constexpr int HALF = DIM / 2, PIECES = DIM / 16;  // of 16 bytes, that a lane has of keys, and of values
  extern __shared__ __align__(16) unsigned char memory[];
  auto turned = reinterpret_cast<float(*)[DIM]>(memory + DEPTH * 2 * PIECES * READERS * 16);
  auto found = reinterpret_cast<float(*)[QUERIES][RECORD]>(memory);  // in the buffer's place, once it is read
  const int of = blockIdx.y, heads = gridDim.y * group, splits = gridDim.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int share = (context + splits - 1) / splits, begin = min(int(blockIdx.x) * share, context);
  const int end = min(begin + share, context);
  keys += int64_t(of) * capacity * DIM, values += int64_t(of) * capacity * DIM;
  start_next();
  const auto key_at = [&](int i, int first, int limit) {  // 32 numbers further on every second time
    return keys + int64_t(min(first + warp * TOKENS + g + i % 2 * 8, limit - 1)) * DIM + i / 2 * 32 + t * 8;
  };
  const auto value_at = [&](int i, int first, int limit) {
    const int token = first + warp * TOKENS + 2 * t + i % 2 + i / 2 % 2 * 8;
    return values + int64_t(min(token, limit - 1)) * DIM + i / 4 * 64 + g * 8;
  };
  const auto place = [&](int stage, int i) { return memory + ((stage * 2 * PIECES + i) * READERS + threadIdx.x) * 16; };
  const auto fill = [&](int stage, int first) {  // each thread reads only what it copied itself
    for (int i = 0; i < PIECES && first < end; ++i) {
      copy_async<16>(place(stage, i), key_at(i, first, end));
      copy_async<16>(place(stage, PIECES + i), value_at(i, first, end));
    }
    commit_copies();
  };
  for (int stage = 0; stage < DEPTH; ++stage) fill(stage, begin + stage * STEP);  // these tokens do not change
  wait_for_last();
  const int now = __ldcg(position);
  for (int i = threadIdx.x; i < (group + 2) * HALF; i += READERS) {
    const int row = i / HALF, at = i % HALF;  // the group's queries, the key, the value
    const float* from = qkv + (row < group ? of * group + row : heads + (row - group) * gridDim.y + of) * DIM;
    const float left = __ldcg(from + at), right = __ldcg(from + at + HALF);
    float sine = 0.0f, cosine = 1.0f;
    if (row <= group) sincospif(0.31830989f * now * exp2f(-2.0f * at / DIM * log_base), &sine, &cosine);
    const float scale = row < group ? rsqrtf(float(DIM)) * 1.44269504f : 1.0f;  // scores are powers of two
    turned[row][at] = (left * cosine - right * sine) * scale;
    turned[row][at + HALF] = (right * cosine + left * sine) * scale;
    if (row >= group && blockIdx.x == splits - 1) {
      bf16* const to = (row == group ? keys : values) + int64_t(now) * DIM + at;
      to[0] = __float2bfloat16(turned[row][at]), to[HALF] = __float2bfloat16(turned[row][at + HALF]);
    }
  }
  __syncthreads();  // the last share's block reads them again
  uint32_t query[PIECES * 2];
  for (int i = 0; i < PIECES * 2; ++i) {
    const float* const two = &turned[g < group ? g : 0][i / 4 * 32 + t * 8 + i % 4 * 2];
    query[i] = g < group ? paired(two[0], two[1]) : 0;
  }
  float peak = NOTHING, total = 0.0f, sum[PIECES][4] = {};  // of query g; numbers of queries 2 t and 2 t + 1
  const int last = blockIdx.x == splits - 1 ? now + 1 : end;  // the tokens from `context` on follow the last share
  for (int first = begin, stage = 0; first < last;) {
    const bool early = first < end;
    const int limit = early ? end : last;
    uint4 words[2 * PIECES];
    if (early) wait_for_copies<DEPTH - 1>();
    for (int i = 0; i < PIECES; ++i) {
      const auto from = reinterpret_cast<const uint4*>(key_at(i, first, limit));
      const auto values_from = reinterpret_cast<const uint4*>(value_at(i, first, limit));
      words[i] = early ? *reinterpret_cast<const uint4*>(place(stage, i)) : __ldcg(from);
      words[PIECES + i] = early ? *reinterpret_cast<const uint4*>(place(stage, PIECES + i)) : __ldcg(values_from);
    }
    if (early) fill(stage, first + DEPTH * STEP), stage = stage + 1 == DEPTH ? 0 : stage + 1;
    float scores[2][4] = {};  // of tokens 2 t, 2 t + 1 and eight further on; the last two are of no query
    for (int i = 0; i < PIECES; ++i) {
      const uint4 four = words[i];
      const uint32_t* const of_query = query + i / 2 * 4;
      multiply(scores[i % 2], {of_query[0], 0, of_query[1], 0}, four.x, four.y);
      multiply(scores[i % 2], {of_query[2], 0, of_query[3], 0}, four.z, four.w);
    }
    float higher = peak, weights[4];
    for (int i = 0; i < 4; ++i) {
      weights[i] = first + warp * TOKENS + 2 * t + i % 2 + i / 2 * 8 < limit ? scores[i / 2][i % 2] : NOTHING;
      higher = fmaxf(higher, weights[i]);
    }
    for (int lanes = 1; lanes < 4; lanes *= 2) higher = fmaxf(higher, __shfl_xor_sync(0xffffffff, higher, lanes));
    const float shrink = exp2f(peak - higher);
    peak = higher, total *= shrink;
    for (float& weight : weights) total += weight = weight == NOTHING ? 0.0f : exp2f(weight - higher);
    const float shrinks[2] = {__shfl_sync(0xffffffff, shrink, 8 * t), __shfl_sync(0xffffffff, shrink, 8 * t + 4)};
    const uint32_t pairs[2] = {paired(weights[0], weights[1]), paired(weights[2], weights[3])};
    for (int i = 0; i < PIECES; ++i) {  // rows g and g + 8 of the transposed values are two neighbouring numbers
      uint32_t of_token[4];
      for (int j = 0; j < 4; ++j) of_token[j] = reinterpret_cast<const uint32_t*>(words + PIECES + i / 4 * 4 + j)[i % 4];
      for (int j = 0; j < 4; ++j) sum[i][j] *= shrinks[j % 2];
      const uint32_t turned_values[4] = {
          __byte_perm(of_token[0], of_token[1], 0x5410), __byte_perm(of_token[0], of_token[1], 0x7632),
          __byte_perm(of_token[2], of_token[3], 0x5410), __byte_perm(of_token[2], of_token[3], 0x7632)};
      multiply(sum[i], turned_values, pairs);
    }
    first = early ? min(first + STEP, end) : first + STEP;
  }
  wait_for_all_copies();
  __syncthreads();
  for (int lanes = 1; lanes < 4; lanes *= 2) total += __shfl_xor_sync(0xffffffff, total, lanes);
  if (t == 0 && g < QUERIES) found[warp][g][WIDEST] = peak, found[warp][g][WIDEST + 1] = total;
  for (int i = 0; i < PIECES * 4 && t < QUERIES / 2; ++i) {
    found[warp][2 * t + i % 2][i / 16 * 64 + g * 8 + i / 4 % 4 * 2 + i / 2 % 2] = sum[i / 4][i % 4];
  }
  __syncthreads();
  float* const all = shares + int64_t(of) * splits * QUERIES * RECORD;
  for (int i = threadIdx.x; i < group * DIM; i += READERS) {
    const Sum sum(&found[0][i / DIM][0], READERS / 32, i % DIM);
    float* const record = all + (blockIdx.x * QUERIES + i / DIM) * RECORD;
    record[i % DIM] = sum.number;
    if (i % DIM == 0) record[WIDEST] = sum.peak, record[WIDEST + 1] = sum.total;
  }
  __threadfence();
  __syncthreads();
  const bool is_last = threadIdx.x == 0 && atomicAdd(arrived + of, 1) == splits - 1;
  if (!__syncthreads_or(is_last)) return;
  __threadfence();
  if (threadIdx.x == 0) arrived[of] = 0;  // for the next launch
  for (int i = threadIdx.x; i < group * DIM; i += READERS) {
    const Sum sum(all + i / DIM * RECORD, splits, i % DIM);
    out[of * group * DIM + i] = sum.number / sum.total;
  }
}

// One block: the likeliest token and the normed state, and the next token's stream, which is its embedding.
constexpr int LAST_THREADS = 1024;
__global__ void __launch_bounds__(LAST_THREADS)
    settle_one(unsigned long long* best, float* hidden, const bf16* gain, const bf16* embedding, int64_t* tokens,
               bf16* states, int64_t* position, int context, int width, float epsilon) {
  start_next();
  wait_for_last();
  const int64_t now = __ldcg(position) - context, token = ~uint32_t(__ldcg(best));
  float square = 0.0f;
  for (int i = threadIdx.x; i < width; i += LAST_THREADS) square += __ldcg(hidden + i) * __ldcg(hidden + i);
  const float norm = rsqrtf(block_sum(square) / width + epsilon);  // all have read the position and the token
  for (int i = threadIdx.x; i < width; i += LAST_THREADS) {
    states[now * width + i] = __float2bfloat16(__ldcg(hidden + i) * norm * wide(gain[i]));
    hidden[i] = wide(embedding[token * width + i]);
  }
  if (threadIdx.x == 0) tokens[now] = token, *position = context + now + 1, *best = 0;
}

// Launches a kernel that, from Hopper on, may start before the last one of its stream has ended. All kernels ask for the
// same division of the L1 cache: a multiprocessor changes it only when it is empty.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, int threads, int bytes, cudaStream_t stream,
                   Arguments... given) {
  int major = 0;
  TRY(query_device(&major, cudaDevAttrComputeCapabilityMajor));
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {blocks, dim3(threads), size_t(bytes), stream, &attribute, major >= 9 ? 1u : 0u};
  return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

template <int STAGES, typename... Arguments>
cudaError_t multiply_by(int kind, dim3 blocks, cudaStream_t stream, Arguments... given) {
  const auto kernel = kind == STORED  ? product<STORED, STAGES>
                      : kind == GATED ? product<GATED, STAGES>
                      : kind == ADDED ? product<ADDED, STAGES>
                                      : product<CHOSEN, STAGES>;
  return launch(kernel, blocks, THREADS, WARPS * STAGES * PIECE + SHARE * 2, stream, given...);
}

extern "C" int linear(const int* words, const __nv_bfloat16* scales, const float* x, const __nv_bfloat16* gain,
                      float* out, int64_t* best, int kind, int outputs, int columns, float epsilon,
                      cudaStream_t stream) {
  if (kind != ADDED && (columns > SHARE || columns % 8)) return cudaErrorInvalidValue;  // a norm is of whole rows
  int multiprocessors = 0, most = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  TRY(query_device(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  const int tiles = ceil_div(outputs, kind == GATED ? ROWS / 2 : ROWS), groups = ceil_div(columns, GROUP);
  const int shares = ceil_div(columns, SHARE), share = ceil_div(ceil_div(groups, shares), PARTS) * PARTS;
  const int room = multiprocessors / shares;
  const auto by = most >= 113 << 10 ? multiply_by<3, const uint4*, const uint32_t*, const float*, const bf16*, float*,
                                                  unsigned long long*, int, int, int, float>
                                    : multiply_by<2, const uint4*, const uint32_t*, const float*, const bf16*, float*,
                                                  unsigned long long*, int, int, int, float>;
  return by(kind, dim3(tiles < room ? tiles : room, shares), stream, reinterpret_cast<const uint4*>(words),
            reinterpret_cast<const uint32_t*>(scales), x, gain, out, reinterpret_cast<unsigned long long*>(best),
            outputs, columns, share, epsilon);
}

// `shares` has 64 x 4 x 130 numbers for each key head, and `arrived` one, which is zero between launches.
extern "C" int attend(const float* qkv, __nv_bfloat16* keys, __nv_bfloat16* values, const int64_t* position, float* out,
                      float* shares, int* arrived, int heads, int group, int capacity, int context, int dim,
                      float log_base, cudaStream_t stream) {
  if (dim != 64 && dim != 128 || group > QUERIES || context < 1) return cudaErrorInvalidValue;
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int kept = heads / group, room = max(multiprocessors / kept, 1);
  const int bytes = DEPTH * dim / 8 * READERS * 16 + (QUERIES + 2) * dim * 4;
  return launch(dim == 64 ? attend_some<64> : attend_some<128>, dim3(min(room, SPLITS), kept), READERS, bytes, stream,
                qkv, keys, values, position, out, shares, arrived, group, capacity, context, log_base);
}

extern "C" int settle(int64_t* best, float* hidden, const __nv_bfloat16* gain, const __nv_bfloat16* embedding,
                      int64_t* tokens, __nv_bfloat16* states, int64_t* position, int context, int width, float epsilon,
                      cudaStream_t stream) {
  return launch(settle_one, dim3(1), LAST_THREADS, 0, stream, reinterpret_cast<unsigned long long*>(best), hidden, gain,
                embedding, tokens, states, position, context, width, epsilon);
}
