// Decoder blocks for one token in one kernel: a warp has the next weights on their way before it waits at a barrier.
#include "grid.cuh"

constexpr int WARPS = 16;              // that multiply
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCK = THREADS + 32;    // with a warp that only keeps the barrier
constexpr int PIECES = 8;              // of 16 bytes, that a lane loads of a row at once
constexpr int PART = PIECES * 32;      // pieces of a warp
constexpr int DIM = 64;                // of a head
constexpr int MOST = 8192;             // numbers of an activation
constexpr int TOKENS = 4;              // of the cache, that a warp takes at once
constexpr float NOTHING = -1e30f;      // a score below all others
constexpr bool EARLY = true;           // whether a warp asks for the next weights before the barrier

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

// A warp's part of a row of weights into registers; zeros behind the row's end.
__device__ void load(const bf16* row, int first, int pieces, uint4 (&own)[PIECES]) {
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    const int piece = first + i * 32 + threadIdx.x % 32;
    own[i] = make_uint4(0, 0, 0, 0);
    if (piece < pieces) own[i] = __ldcs(reinterpret_cast<const uint4*>(row) + piece);
  }
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

// The first part of what the warp will multiply in this matrix.
__device__ void load_first(const Matrix& matrix, uint4 (&own)[PIECES]) {
  const int64_t output = first_output();
  if (threadIdx.x < THREADS && output < matrix.outputs) load(matrix.weights + output * matrix.n, 0, matrix.n / 8, own);
}

// A warp for each output, and with two halves for the outputs of two matrices that lie one behind the other. The first
// part is loaded already.
template <int HALVES, typename Store>
__device__ void product(const Matrix& matrix, const uint4* x, uint4 (&own)[PIECES], Store store) {
  if (threadIdx.x >= THREADS) return;
  const int pieces = matrix.n / 8;
  bool loaded = true;
  for (int output = first_output(); output < matrix.outputs; output += WARPS * gridDim.x) {
    float sums[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      float sum = 0.0f;
      for (int first = 0; first < pieces; first += PART) {
        if (!loaded) load(matrix.weights + (int64_t(half) * matrix.outputs + output) * matrix.n, first, pieces, own);
        loaded = false;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
          const int piece = first + i * 32 + threadIdx.x % 32;
          if (piece < pieces) sum += dot(own[i], x[piece]);
        }
      }
      sums[half] = warp_sum(sum);
    }
    if (threadIdx.x % 32 == 0) store(output, sums);
  }
}

// x / rms(x) * gain into shared memory. What other blocks have written is read past the L1 cache.
__device__ void normalize(const float* x, const bf16* gain, int n, float epsilon, Shared& shared) {
  auto to = reinterpret_cast<bf16*>(shared.x);
  float square = 0.0f;
  if (threadIdx.x < THREADS) {
    for (int i = threadIdx.x; i < n; i += THREADS) square += __ldcg(x + i) * __ldcg(x + i);
    square = warp_sum(square);
    if (threadIdx.x % 32 == 0) shared.squares[threadIdx.x / 32] = square;
  }
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += shared.squares[warp];
  const float scale = rsqrtf(total / n + epsilon);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    to[i] = __float2bfloat16(__ldcg(x + i) * scale * __bfloat162float(gain[i]));
  }
  __syncthreads();
}

__device__ void fetch(const bf16* x, int n, Shared& shared) {
  for (int i = threadIdx.x; i < n / 8; i += blockDim.x) shared.x[i] = __ldcg(reinterpret_cast<const uint4*>(x) + i);
  __syncthreads();
}

// One head's attention to the cache and the token itself, by a block.
__device__ void attend(const Work& w, int layer, int head, Shared& shared) {
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
  if (warp < WARPS) {
    const float query[2] = {shared.turned[0][2 * lane], shared.turned[0][2 * lane + 1]};
    float peak = NOTHING, total = 0.0f, sum[2] = {};
    if (warp == 0) {
      peak = warp_sum(query[0] * shared.turned[1][2 * lane] + query[1] * shared.turned[1][2 * lane + 1]);
      total = 1.0f, sum[0] = shared.turned[2][2 * lane], sum[1] = shared.turned[2][2 * lane + 1];
    }
    const int64_t start = (int64_t(layer) * w.kv_heads + of) * w.tokens;
    for (int first = warp; first < w.tokens; first += WARPS * TOKENS) {
      float2 key[TOKENS], value[TOKENS];
      float score[TOKENS], higher = peak;
#pragma unroll
      for (int i = 0; i < TOKENS; ++i) {
        const int token = min(first + i * WARPS, w.tokens - 1);
        key[i] = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(w.keys + (start + token) * DIM)[lane]);
        value[i] = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(w.values + (start + token) * DIM)[lane]);
      }
#pragma unroll
      for (int i = 0; i < TOKENS; ++i) {
        score[i] = warp_sum(query[0] * key[i].x + query[1] * key[i].y);
        if (first + i * WARPS >= w.tokens) score[i] = NOTHING;
        higher = fmaxf(higher, score[i]);
      }
      const float shrink = exp2f(peak - higher);
      total *= shrink, sum[0] *= shrink, sum[1] *= shrink, peak = higher;
#pragma unroll
      for (int i = 0; i < TOKENS; ++i) {
        const float weight = exp2f(score[i] - peak);
        total += weight, sum[0] += weight * value[i].x, sum[1] += weight * value[i].y;
      }
    }
    shared.sums[warp][2 * lane] = sum[0], shared.sums[warp][2 * lane + 1] = sum[1];
    if (lane == 0) shared.peaks[warp] = peak, shared.totals[warp] = total;
  }
  __syncthreads();
  if (threadIdx.x < DIM) {
    float best = NOTHING, total = 0.0f, sum = 0.0f;
    for (int i = 0; i < WARPS; ++i) best = fmaxf(best, shared.peaks[i]);
    for (int i = 0; i < WARPS; ++i) {
      const float weight = exp2f(shared.peaks[i] - best);
      total += weight * shared.totals[i], sum += weight * shared.sums[i][threadIdx.x];
    }
    w.attended[head * DIM + threadIdx.x] = __float2bfloat16(sum / total);
  }
  __syncthreads();
}

__device__ void run(const Work& w, int layer, int phase, uint4 (&own)[PIECES], Shared& shared) {
  const int width = w.heads * DIM;
  const float* stream = layer == 0 && phase <= OUT ? w.x : w.out;
  const auto add = [&](int output, const float(&sums)[1]) { w.out[output] = __ldcg(stream + output) + sums[0]; };
  if (phase == ATTEND) {
    for (int head = blockIdx.x; head < w.heads; head += gridDim.x) attend(w, layer, head, shared);
    return;
  }
  const Matrix matrix = matrix_of(w, layer, phase);
  if (phase == QKV) {
    normalize(stream, w.gains + int64_t(layer) * 2 * width, width, w.epsilon, shared);
    product<1>(matrix, shared.x, own, [&](int output, const float(&sums)[1]) { w.qkv[output] = sums[0]; });
  } else if (phase == GATE_UP) {
    normalize(stream, w.gains + (int64_t(layer) * 2 + 1) * width, width, w.epsilon, shared);
    product<2>(matrix, shared.x, own, [&](int output, const float(&sums)[2]) {
      w.active[output] = __float2bfloat16(sums[0] / (1.0f + __expf(-sums[0])) * sums[1]);
    });
  } else {
    fetch(phase == OUT ? w.attended : w.active, matrix.n, shared);
    product<1>(matrix, shared.x, own, add);
  }
}

__global__ void __launch_bounds__(BLOCK, 1) all_phases(Work work, unsigned* arrived) {
  __shared__ Shared shared;
  uint4 own[PIECES];
  const int steps = work.layers * PHASES;
  load_first(matrix_of(work, 0, QKV), own);
  for (int step = 0; step < steps; ++step) {
    const int phase = step % PHASES;
    if (step > 0) grid_barrier<BLOCK>(arrived, step);
    if (!EARLY && step > 0 && phase != ATTEND) load_first(matrix_of(work, step / PHASES, phase), own);
    run(work, step / PHASES, phase, own, shared);
    const int next = step + (phase == QKV ? 2 : 1);  // attention has no weights: those behind it come meanwhile
    if (EARLY && phase != ATTEND && next < steps) load_first(matrix_of(work, next / PHASES, next % PHASES), own);
  }
  // The last block to come here sets the counter back: all others have passed every barrier.
  if (threadIdx.x == BLOCK - 1 && atomicAdd(arrived, 1) == steps * gridDim.x - 1) *arrived = 0;
}

// Width is heads * DIM, at most MOST, as is inner, a multiple of 8. `arrived` is a number, zero before the first call.
extern "C" int decode(const float* x, const float* cosines, const float* sines, const __nv_bfloat16* gains,
                      const __nv_bfloat16* qkv_weights, const __nv_bfloat16* out_weights,
                      const __nv_bfloat16* gate_up_weights, const __nv_bfloat16* down_weights,
                      const __nv_bfloat16* keys, const __nv_bfloat16* values, float* out, __nv_bfloat16* fresh,
                      float* qkv, __nv_bfloat16* attended, __nv_bfloat16* active, int* arrived, int layers, int heads,
                      int kv_heads, int inner, int tokens, float epsilon, cudaStream_t stream) {
  if (heads % kv_heads || heads * DIM > MOST || inner % 8 || inner > MOST) return cudaErrorInvalidValue;
  int blocks;
  TRY(query_device(&blocks, cudaDevAttrMultiProcessorCount));
  Work work = {x, cosines, sines, gains, qkv_weights, out_weights, gate_up_weights, down_weights, keys, values,
               out, fresh, qkv, attended, active, layers, heads, kv_heads, inner, tokens, epsilon};
  auto counter = reinterpret_cast<unsigned*>(arrived);
  void* arguments[] = {&work, &counter};
  return cudaLaunchCooperativeKernel(all_phases, dim3(blocks), dim3(BLOCK), arguments, 0, stream);
}
