// What the kernels of decoder blocks for one token share: their arguments, the norm, attention, and the product of a part.
#pragma once
#include "kernel.cuh"

constexpr int WARPS = 16;              // that multiply
constexpr int THREADS = 32 * WARPS;    // of a block
constexpr int DIM = 64;                // of a head
constexpr int MOST = 8192;             // numbers of an activation
constexpr int TOKENS = 8;              // of the cache, that a lane takes at once
constexpr float NOTHING = -1e30f;      // a score below all others

enum Phase { QKV, ATTEND, OUT, GATE_UP, DOWN, PHASES };

struct Work {
  const float *x, *cosines, *sines;  // [width], [DIM / 2] twice
  const bf16 *gains, *qkv_weights, *out_weights, *gate_up_weights, *down_weights, *keys, *values;
  float* out;             // [width], the stream of hidden states
  bf16* fresh;            // [layers, 2, kv_heads, DIM], the token's keys and values
  float* qkv;             // scratch, as are the two below
  bf16 *attended, *active;
  int layers, heads, kv_heads, inner, tokens;
  float epsilon;
};

struct Shared {
  uint4 x[MOST / 8];  // the activation that a matrix meets, in bf16
  float turned[3][DIM], sums[WARPS][DIM], peaks[WARPS], totals[WARPS], squares[WARPS];
};

struct Matrix {
  const bf16* weights;
  int outputs, n;
};

__device__ Matrix matrix_of(const Work& w, int layer, int phase) {
  const int width = w.heads * DIM, all = (w.heads + 2 * w.kv_heads) * DIM;
  const int64_t at = layer;
  if (phase == QKV) return {w.qkv_weights + at * all * width, all, width};
  if (phase == OUT) return {w.out_weights + at * width * width, width, width};
  if (phase == GATE_UP) return {w.gate_up_weights + at * 2 * w.inner * width, w.inner, width};
  return {w.down_weights + at * width * w.inner, width, w.inner};
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

__device__ float dot(uint4 a, uint4 b) {
  const auto left = reinterpret_cast<const __nv_bfloat162*>(&a), right = reinterpret_cast<const __nv_bfloat162*>(&b);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(left[i]), y = __bfloat1622float2(right[i]);
    sum += x.x * y.x + x.y * y.y;
  }
  return sum;
}

// Neighbouring outputs go to different multiprocessors, so that all have as many, but for one.
__device__ int first_output() { return threadIdx.x / 32 * gridDim.x + blockIdx.x; }

// x / rms(x) * gain into shared memory. What other blocks have written is read past the L1 cache. n is a multiple of 4.
__device__ void normalize(const float* x, const bf16* gain, int n, float epsilon, Shared& shared) {
  constexpr int FOURS = MOST / 4 / THREADS;  // four numbers each, that a thread has at most
  float4 own[FOURS];
  uint2 gains[FOURS];
  float square = 0.0f;
#pragma unroll
  for (int j = 0; j < FOURS; ++j) {
    const int i = j * THREADS + threadIdx.x;
    own[j] = {};
    if (4 * i >= n) continue;
    own[j] = __ldcg(reinterpret_cast<const float4*>(x) + i);
    gains[j] = reinterpret_cast<const uint2*>(gain)[i];
  }
#pragma unroll
  for (int j = 0; j < FOURS; ++j) {
    square += own[j].x * own[j].x + own[j].y * own[j].y + own[j].z * own[j].z + own[j].w * own[j].w;
  }
  square = warp_sum(square);
  if (threadIdx.x % 32 == 0) shared.squares[threadIdx.x / 32] = square;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += shared.squares[warp];
  const float scale = rsqrtf(total / n + epsilon);
#pragma unroll
  for (int j = 0; j < FOURS; ++j) {
    const int i = j * THREADS + threadIdx.x;
    if (4 * i >= n) continue;
    const auto pair = reinterpret_cast<const __nv_bfloat162*>(&gains[j]);
    const float2 left = __bfloat1622float2(pair[0]), right = __bfloat1622float2(pair[1]);
    auto to = reinterpret_cast<__nv_bfloat162*>(shared.x) + 2 * i;
    to[0] = __floats2bfloat162_rn(own[j].x * scale * left.x, own[j].y * scale * left.y);
    to[1] = __floats2bfloat162_rn(own[j].z * scale * right.x, own[j].w * scale * right.y);
  }
  __syncthreads();
}

__device__ void fetch(const bf16* x, int n, Shared& shared) {
  for (int i = threadIdx.x; i < n / 8; i += THREADS) shared.x[i] = __ldcg(reinterpret_cast<const uint4*>(x) + i);
  __syncthreads();
}

// A lane's part of some keys and values: eight lanes hold a token's, so a warp has four tokens at a time.
struct Cache {
  uint4 keys[TOKENS], values[TOKENS];
};

__device__ int token_of(int first, int i) { return first + (i * WARPS + threadIdx.x / 32) * 4 + threadIdx.x % 32 / 8; }

__device__ void load_cache(const Work& w, int layer, int head, int first, Cache& cache) {
  const int64_t start = (int64_t(layer) * w.kv_heads + head / (w.heads / w.kv_heads)) * w.tokens;
#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    const int64_t at = (start + min(token_of(first, i), w.tokens - 1)) * (DIM / 8) + threadIdx.x % 8;
    cache.keys[i] = reinterpret_cast<const uint4*>(w.keys)[at];
    cache.values[i] = reinterpret_cast<const uint4*>(w.values)[at];
  }
}

__device__ void unpack(uint4 packed, float (&to)[8]) {
  const auto pairs = reinterpret_cast<const __nv_bfloat162*>(&packed);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    to[2 * i] = pair.x, to[2 * i + 1] = pair.y;
  }
}

// The scores' softmax so far, of the tokens that a lane has seen, and its eight columns of their values' sum.
struct State {
  float peak = NOTHING, total = 0.0f, sum[8] = {};

  __device__ void rescale(float higher) {
    const float shrink = exp2f(peak - higher);
    total *= shrink, peak = higher;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] *= shrink;
  }
};

__device__ void take(const Cache& cache, const float (&query)[8], int first, int tokens, State& state) {
  float score[TOKENS], higher = state.peak;
#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    float key[8];
    unpack(cache.keys[i], key);
    score[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) score[i] += query[j] * key[j];
#pragma unroll
    for (int lanes = 4; lanes > 0; lanes /= 2) score[i] += __shfl_xor_sync(0xffffffff, score[i], lanes);
    if (token_of(first, i) >= tokens) score[i] = NOTHING;
    higher = fmaxf(higher, score[i]);
  }
  state.rescale(higher);
#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    float value[8];
    unpack(cache.values[i], value);
    const float weight = exp2f(score[i] - higher);
    state.total += weight;
#pragma unroll
    for (int j = 0; j < 8; ++j) state.sum[j] += weight * value[j];
  }
}

// One head's attention to the cache, whose first tokens are loaded already, and to the token itself, by a block.
__device__ void attend(const Work& w, int layer, int head, Cache& cache, Shared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = w.heads / w.kv_heads, of = head / group;
  if (warp < 3) {  // query and key are rotated by the position, the value is not; scores are powers of 2
    const float* from = w.qkv + (warp == 0 ? head : w.heads + (warp - 1) * w.kv_heads + of) * DIM;
    const float left = __ldcg(from + lane), right = __ldcg(from + lane + DIM / 2);
    const float cosine = warp < 2 ? w.cosines[lane] : 1.0f, sine = warp < 2 ? w.sines[lane] : 0.0f;
    const float scale = warp == 0 ? rsqrtf(DIM) * 1.44269504f : 1.0f;
    shared.turned[warp][lane] = (left * cosine - right * sine) * scale;
    shared.turned[warp][lane + DIM / 2] = (right * cosine + left * sine) * scale;
  }
  __syncthreads();
  if (head % group == 0 && threadIdx.x < 2 * DIM) {
    const int which = threadIdx.x / DIM, column = threadIdx.x % DIM;
    const int64_t at = ((int64_t(layer) * 2 + which) * w.kv_heads + of) * DIM + column;
    w.fresh[at] = __float2bfloat16(shared.turned[1 + which][column]);
  }
  const int left = lane % 8 * 8;
  State state;
  float query[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) query[j] = shared.turned[0][left + j];
  float own = 0.0f;  // the token's own score
#pragma unroll
  for (int j = 0; j < 8; ++j) own += query[j] * shared.turned[1][left + j];
#pragma unroll
  for (int lanes = 4; lanes > 0; lanes /= 2) own += __shfl_xor_sync(0xffffffff, own, lanes);
  if (threadIdx.x < 8) {
    state.total = 1.0f, state.peak = own;
#pragma unroll
    for (int j = 0; j < 8; ++j) state.sum[j] = shared.turned[2][left + j];
  }
  for (int first = 0; first < w.tokens; first += 4 * WARPS * TOKENS) {
    if (first > 0) load_cache(w, layer, head, first, cache);
    take(cache, query, first, w.tokens, state);
  }
  float best = state.peak;
#pragma unroll
  for (int lanes = 8; lanes < 32; lanes *= 2) best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, lanes));
  state.rescale(best);
#pragma unroll
  for (int lanes = 8; lanes < 32; lanes *= 2) {
    state.total += __shfl_xor_sync(0xffffffff, state.total, lanes);
#pragma unroll
    for (int j = 0; j < 8; ++j) state.sum[j] += __shfl_xor_sync(0xffffffff, state.sum[j], lanes);
  }
  if (lane < 8) {
#pragma unroll
    for (int j = 0; j < 8; ++j) shared.sums[warp][left + j] = state.sum[j];
  }
  if (lane == 0) shared.peaks[warp] = state.peak, shared.totals[warp] = state.total;
  __syncthreads();
  if (threadIdx.x < DIM) {
    float best = NOTHING, total = 0.0f, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i) best = fmaxf(best, shared.peaks[i]);
#pragma unroll
    for (int i = 0; i < WARPS; ++i) {
      const float weight = exp2f(shared.peaks[i] - best);
      total += weight * shared.totals[i], sum += weight * shared.sums[i][threadIdx.x];
    }
    w.attended[head * DIM + threadIdx.x] = __float2bfloat16(sum / total);
  }
  __syncthreads();
}

// All heads, shared out over the blocks.
__device__ void attend(const Work& w, int layer, Shared& shared) {
  for (int head = blockIdx.x; head < w.heads; head += gridDim.x) {
    Cache cache;
    load_cache(w, layer, head, 0, cache);
    attend(w, layer, head, cache, shared);
  }
}
