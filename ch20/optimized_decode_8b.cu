// A token through a decoder of four-bit weights; each kernel asks for its first weights before it waits.
// spills: four queries, their sums and a lane's cached keys and values fill the registers that two blocks have
#include "ampere.cuh"
#include "grid.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int GROUP = 128;  // weights of a row that share a scale
constexpr int ROWS = 16, PARTS = 4;  // of a tile; groups that a warp takes of a row
constexpr int SHARE = PARTS * WARPS * GROUP;  // columns of a block: a longer row is shared out
enum Kind { STORED, GATED, ADDED };  // a product with a normed x, silu(one) * other of two, a sum with what is there

__device__ float warp_sum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float warps[WARPS];
  value = warp_sum(value);
  __syncthreads();  // the last sum may still be read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < WARPS ? warps[threadIdx.x % 32] : 0.0f);
}

__device__ float wide(bf16 value) { return __bfloat162float(value); }

// Nibbles i and i + 4 of a word as bf16: 128 + n is 0x4300 with n as the last bits. The code is n - 8: 136 less.
__device__ uint32_t widened(uint32_t word, int i) { return (word >> 4 * i & 0x000f000f) | 0x43004300; }

// What a warp multiplies of a tile: lane 4 g + t has, of rows g and g + 8, 16 weights of each 64, in the order of mma.
struct Weights {
  uint4 words[PARTS][2];
  uint32_t scales[PARTS];  // of rows g and g + 8

  __device__ void load(const uint4* all_words, const uint32_t* all_scales, int64_t first, int parts) {
    const int lane = threadIdx.x % 32;
    *this = {};
    for (int part = 0; part < PARTS; ++part) {
      if (part >= parts) continue;
      words[part][0] = __ldcs(all_words + (first + part) * 64 + lane);
      words[part][1] = __ldcs(all_words + (first + part) * 64 + 32 + lane);
      scales[part] = __ldcs(all_scales + (first + part) * 8 + lane / 4);
    }
  }

  // The products of rows g and g + 8 with x, of which the warp's part begins at `x`, and has these sums.
  __device__ float2 times(const bf16* x, const float (&x_sums)[PARTS]) const {
    const int lane = threadIdx.x % 32;
    float2 total = {0.0f, 0.0f};
    for (int part = 0; part < PARTS; ++part) {
      float sum[4] = {-136.0f * x_sums[part], 0.0f, -136.0f * x_sums[part], 0.0f};
      for (int half = 0; half < 2; ++half) {
        const uint4* const of_x = reinterpret_cast<const uint4*>(x + part * GROUP + half * 64 + lane % 4 * 16);
        const uint4 numbers[2] = {of_x[0], of_x[1]};
        for (int i = 0; i < 4; ++i) {  // 16 rows of 16 weights times 16 numbers: all eight columns are alike
          const uint32_t word = reinterpret_cast<const uint32_t*>(&words[part][half])[i];
          const uint32_t* const pair = reinterpret_cast<const uint32_t*>(numbers) + 2 * i;
          multiply(sum, {widened(word, 0), widened(word, 1), widened(word, 2), widened(word, 3)}, pair);
        }
      }
      const float2 scale = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(scales[part]));
      total = {total.x + scale.x * sum[0], total.y + scale.y * sum[2]};
    }
    return total;
  }
};

// words [tiles, groups, 2, 32] of 16 bytes and scales [tiles, groups, 8] of two. A gated tile has 8 rows of the gate, 8
// of up. Blocks in y take shares of the columns. x is filled up with zeros to a multiple of eight.
template <Kind KIND>
__global__ void __launch_bounds__(THREADS, 2)
    product(const uint4* words, const uint32_t* scales, const float* x, const bf16* gain, float* out, int outputs,
            int columns, float epsilon) {
  constexpr int OUTPUTS = KIND == GATED ? ROWS / 2 : ROWS;
  __shared__ __align__(16) bf16 factors[SHARE];
  __shared__ float partial[2][WARPS][ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, groups = (columns + GROUP - 1) / GROUP;
  const int tiles = (outputs + OUTPUTS - 1) / OUTPUTS, first = (blockIdx.y * WARPS + warp) * PARTS;
  const int parts = min(max(groups - first, 0), PARTS);
  start_next();
  Weights own;
  const auto load = [&](Weights& to, int tile) {
    to.load(words, scales, int64_t(tile) * groups + first, tile < tiles ? parts : 0);
  };
  load(own, blockIdx.x);
  wait_for_last();  // nothing above depends on the kernels before
  float square = 0.0f;
  for (int i = threadIdx.x * 8; i < SHARE; i += THREADS * 8) {
    const int column = blockIdx.y * SHARE + i;
    float4 value[2] = {};
    alignas(16) bf16 gains[8] = {}, made[8];
    if (column < columns) {  // what the kernel before wrote is in the L2 cache
      value[0] = __ldcg(reinterpret_cast<const float4*>(x + column));
      value[1] = __ldcg(reinterpret_cast<const float4*>(x + column) + 1);
      if (KIND != ADDED) *reinterpret_cast<uint4*>(gains) = *reinterpret_cast<const uint4*>(gain + column);
    }
    for (int j = 0; j < 8; ++j) {
      const float number = reinterpret_cast<const float*>(value)[j];
      square += number * number;
      made[j] = __float2bfloat16(KIND == ADDED ? number : number * wide(gains[j]));
    }
    *reinterpret_cast<uint4*>(factors + i) = *reinterpret_cast<const uint4*>(made);
  }
  const float norm = KIND == ADDED ? 1.0f : rsqrtf(block_sum(square) / columns + epsilon);
  __syncthreads();
  float x_sums[PARTS];
  for (int part = 0; part < PARTS; ++part) {
    const bf16* const four = factors + (warp * PARTS + part) * GROUP + lane * 4;
    x_sums[part] = warp_sum((wide(four[0]) + wide(four[1])) + (wide(four[2]) + wide(four[3])));
  }
  for (int tile = blockIdx.x, turn = 0; tile < tiles; tile += gridDim.x, turn ^= 1) {
    Weights following;
    load(following, tile + gridDim.x);
    const float2 sums = own.times(factors + warp * PARTS * GROUP, x_sums);
    if (lane % 4 == 0) partial[turn][warp][lane / 4] = sums.x, partial[turn][warp][lane / 4 + 8] = sums.y;
    __syncthreads();
    if (warp == 0) {
      float total = 0.0f;
      for (int i = 0; i < WARPS; ++i) total += norm * partial[turn][i][lane % ROWS];
      const float up = __shfl_down_sync(0xffffffff, total, 8);
      const int output = tile * OUTPUTS + lane;
      const bool mine = lane < OUTPUTS && output < outputs;
      if (mine && KIND == STORED) out[output] = total;
      if (mine && KIND == GATED) out[output] = total / (1.0f + __expf(-total)) * up;
      if (mine && KIND == ADDED) atomicAdd(out + output, total);
    }
    own = following;
  }
}

constexpr int QUERIES = 4;     // query heads that share keys
constexpr int TOKENS = 4;      // of the cache, that a lane takes at once
constexpr int SPLITS = 64;     // shares of the cache, at most
constexpr int WIDEST = 128, RECORD = WIDEST + 2;  // numbers of a head; with their greatest score and total
constexpr float NOTHING = -1e30f;    // a score below all others

// Keys and values of some tokens: dim / 8 neighbouring lanes hold one token's, eight numbers each.
struct Cached {
  uint4 keys[TOKENS], values[TOKENS];

  __device__ void load(const bf16* all_keys, const bf16* all_values, int first, int end, int per) {
    for (int i = 0; i < TOKENS; ++i) {
      const int64_t token = max(min(first + (i * THREADS + int(threadIdx.x)) / per, end - 1), 0);
      keys[i] = __ldcg(reinterpret_cast<const uint4*>(all_keys) + token * per + threadIdx.x % per);
      values[i] = __ldcg(reinterpret_cast<const uint4*>(all_values) + token * per + threadIdx.x % per);
    }
  }
};

// A query's softmax over the tokens so far, and a lane's eight columns of their values' sum. Scores are powers of two.
struct State {
  float peak = NOTHING, total = 0.0f, sum[8] = {};

  __device__ void rescale(float higher) {
    const float shrink = exp2f(peak - higher);
    total *= shrink, peak = higher;
    for (int j = 0; j < 8; ++j) sum[j] *= shrink;
  }

  __device__ void merge(int lanes) {  // with the lane that is so far away
    rescale(fmaxf(peak, __shfl_xor_sync(0xffffffff, peak, lanes)));
    total += __shfl_xor_sync(0xffffffff, total, lanes);
    for (int j = 0; j < 8; ++j) sum[j] += __shfl_xor_sync(0xffffffff, sum[j], lanes);
  }
};

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

// A block takes a share of the cache for the query heads of one key head (blockIdx.y), the last share with the tokens
// from `context` on, the newest of which it appends. A key head's last block to come adds up all shares.
__global__ void __launch_bounds__(THREADS, 2)
    attend_some(const float* qkv, bf16* keys, bf16* values, const int64_t* position, float* out, float* shares,
                int* arrived, int group, int capacity, int context, int dim, float log_base) {
  __shared__ __align__(16) float turned[QUERIES + 2][WIDEST], found[WARPS][QUERIES][RECORD];
  const int of = blockIdx.y, heads = gridDim.y * group, half = dim / 2, per = dim / 8, splits = gridDim.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, step = TOKENS * THREADS / per, slot = threadIdx.x / per;
  const int share = (context + splits - 1) / splits, begin = min(int(blockIdx.x) * share, context);
  const int end = min(begin + share, context), piece = lane % per * 8;  // of a head's numbers
  keys += int64_t(of) * capacity * dim, values += int64_t(of) * capacity * dim;
  start_next();
  Cached own;
  own.load(keys, values, begin, end, per);  // tokens before `context` do not change
  wait_for_last();
  const int now = *position;
  for (int i = threadIdx.x; i < (group + 2) * half; i += THREADS) {
    const int row = i / half, at = i % half;  // the group's queries, the key, the value
    const float* from = qkv + (row < group ? of * group + row : heads + (row - group) * gridDim.y + of) * dim;
    const float left = __ldcg(from + at), right = __ldcg(from + at + half);
    float sine = 0.0f, cosine = 1.0f;
    if (row <= group) sincospif(0.31830989f * now * exp2f(-2.0f * at / dim * log_base), &sine, &cosine);
    const float scale = row < group ? rsqrtf(float(dim)) * 1.44269504f : 1.0f;
    turned[row][at] = (left * cosine - right * sine) * scale;
    turned[row][at + half] = (right * cosine + left * sine) * scale;
    if (row >= group && blockIdx.x == splits - 1) {
      bf16* const to = (row == group ? keys : values) + int64_t(now) * dim + at;
      to[0] = __float2bfloat16(turned[row][at]), to[half] = __float2bfloat16(turned[row][at + half]);
    }
  }
  __syncthreads();  // the last share's block reads them again
  State states[QUERIES];
  float query[QUERIES][8];
  for (int i = 0; i < QUERIES * 8; ++i) query[i / 8][i % 8] = i / 8 < group ? turned[i / 8][piece + i % 8] : 0.0f;
  const int last = blockIdx.x == splits - 1 ? now + 1 : end;  // the tokens from `context` on follow the last share
  for (int first = begin; first < last; first += step) {
    if (first > begin || first + step > end) own.load(keys, values, first, last, per);
    float score[QUERIES][TOKENS] = {};
    for (int i = 0; i < TOKENS * 8; ++i) {
      const float key = wide(reinterpret_cast<const bf16*>(own.keys)[i]);
      for (int g = 0; g < QUERIES; ++g) score[g][i / 8] += query[g][i % 8] * key;
    }
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2) {  // all scores at once, which hides a shuffle's latency
      for (int i = 0; i < QUERIES * TOKENS; ++i) {
        float& own_score = score[i / TOKENS][i % TOKENS];
        own_score += (lanes < per) * __shfl_xor_sync(0xffffffff, own_score, lanes);
      }
    }
    for (int g = 0; g < QUERIES; ++g) {
      float higher = states[g].peak;
      for (int i = 0; i < TOKENS; ++i) {
        if (first + slot + i * (THREADS / per) >= last) score[g][i] = NOTHING;
        higher = fmaxf(higher, score[g][i]);
      }
      states[g].rescale(higher);
      for (int i = 0; i < TOKENS; ++i) states[g].total += score[g][i] = exp2f(score[g][i] - higher);
    }
    for (int i = 0; i < TOKENS * 8; ++i) {
      const float value = wide(reinterpret_cast<const bf16*>(own.values)[i]);
      for (int g = 0; g < QUERIES; ++g) states[g].sum[i % 8] += score[g][i / 8] * value;
    }
  }
  for (int g = 0; g < QUERIES; ++g) {
    for (int lanes = per; lanes < 32; lanes *= 2) states[g].merge(lanes);
    for (int j = 0; j < 8; ++j) found[warp][g][piece + j] = states[g].sum[j];
    if (lane == 0) found[warp][g][WIDEST] = states[g].peak, found[warp][g][WIDEST + 1] = states[g].total;
  }
  __syncthreads();
  float* const all = shares + int64_t(of) * splits * QUERIES * RECORD;
  for (int i = threadIdx.x; i < group * dim; i += THREADS) {
    const Sum sum(found[0][i / dim], WARPS, i % dim);
    float* const record = all + (blockIdx.x * QUERIES + i / dim) * RECORD;
    record[i % dim] = sum.number;
    if (i % dim == 0) record[WIDEST] = sum.peak, record[WIDEST + 1] = sum.total;
  }
  __threadfence();
  __syncthreads();
  const bool is_last = threadIdx.x == 0 && atomicAdd(arrived + of, 1) == splits - 1;
  if (!__syncthreads_or(is_last)) return;
  __threadfence();
  if (threadIdx.x == 0) arrived[of] = 0;  // for the next launch
  for (int i = threadIdx.x; i < group * dim; i += THREADS) {
    const Sum sum(all + i / dim * RECORD, splits, i % dim);
    out[of * group * dim + i] = sum.number / sum.total;
  }
}

// Launches a kernel that, from Hopper on, may start before the last one of its stream has ended.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, cudaStream_t stream, Arguments... given) {
  int major = 0;
  TRY(query_device(&major, cudaDevAttrComputeCapabilityMajor));
  return launch_early(major >= 9, kernel, blocks, THREADS, stream, given...);
}

extern "C" int linear(const int* words, const __nv_bfloat16* scales, const float* x, const __nv_bfloat16* gain,
                      float* out, int kind, int outputs, int columns, float epsilon, cudaStream_t stream) {
  if (kind != ADDED && (columns > SHARE || columns % 8)) return cudaErrorInvalidValue;  // a norm is of whole rows
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int tiles = ceil_div(outputs, kind == GATED ? ROWS / 2 : ROWS), shares = ceil_div(columns, SHARE);
  const int room = ceil_div(2 * multiprocessors, shares);
  const auto kernel = kind == STORED ? product<STORED> : kind == GATED ? product<GATED> : product<ADDED>;
  return launch(kernel, dim3(tiles < room ? tiles : room, shares), stream, reinterpret_cast<const uint4*>(words),
                reinterpret_cast<const uint32_t*>(scales), x, gain, out, outputs, columns, epsilon);
}

// `shares` has 64 x 4 x 130 numbers for each key head, and `arrived` one, which is zero between launches.
extern "C" int attend(const float* qkv, __nv_bfloat16* keys, __nv_bfloat16* values, const int64_t* position, float* out,
                      float* shares, int* arrived, int heads, int group, int capacity, int context, int dim,
                      float log_base, cudaStream_t stream) {
  if (dim > WIDEST || dim < 8 || dim & (dim - 1) || group > QUERIES || context < 1) return cudaErrorInvalidValue;
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int kept = heads / group, room = ceil_div(2 * multiprocessors, kept);
  return launch(attend_some, dim3(min(room, SPLITS), kept), stream, qkv, keys, values, position, out, shares, arrived,
                group, capacity, context, dim, log_base);
}
