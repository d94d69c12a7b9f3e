// Decoder blocks for one token in one kernel: each warp has a ring of weights, which fills behind the barrier only.
#include "grid.cuh"
#include "tma.cuh"

#include <algorithm>

constexpr int WARPS = 16;              // that multiply
constexpr int THREADS = 32 * WARPS;
constexpr int PIECES = 4;              // of 16 bytes, that a lane takes of a row at once
constexpr int PART = PIECES * 32;      // pieces of a warp, and of a place in its ring
constexpr int MOST_PLACES = 8;         // of a ring
constexpr bool ACROSS = false;         // whether a ring fills with the next phases' weights before the barrier
constexpr int DIM = 64;                // of a head
constexpr int MOST = 8192;             // numbers of an activation
constexpr int TOKENS = 4;              // of the cache, that a lane takes at once
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
  Barrier full[WARPS][MOST_PLACES];
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

__device__ int halves_of(int phase) { return phase == GATE_UP ? 2 : 1; }

// The parts of weights that a warp multiplies, in their order: of a phase its outputs, of an output the rows (two in
// GATE_UP), of a row parts. `step` counts phases over all layers.
struct Cursor {
  int step = 0, output = first_output(), half = 0, first = 0;

  // Passes over phases in which this warp has nothing to multiply.
  __device__ void settle(const Work& w) {
    while (step < w.layers * PHASES) {
      const int phase = step % PHASES;
      if (phase != ATTEND && output < matrix_of(w, 0, phase).outputs) return;
      ++step;
    }
  }

  __device__ void advance(const Work& w) {
    const int phase = step % PHASES;
    const Matrix matrix = matrix_of(w, 0, phase);
    first += PART;
    if (first < matrix.n / 8) return;
    first = 0;
    if (++half < halves_of(phase)) return;
    half = 0;
    output += WARPS * gridDim.x;
    if (output < matrix.outputs) return;
    output = first_output();
    ++step;
    settle(w);
  }

  __device__ const bf16* place(const Work& w, uint32_t& bytes) const {
    const Matrix matrix = matrix_of(w, step / PHASES, step % PHASES);
    bytes = 16 * min(PART, matrix.n / 8 - first);
    return matrix.weights + (int64_t(half) * matrix.outputs + output) * matrix.n + 8 * first;
  }
};

// A warp's own ring of parts, filled by the copy engine. All lanes keep it; the first asks for the copies.
struct Ring {
  uint4* parts;
  Barrier* full;
  int places, held = 0, to = 0, from = 0, parity = 0;  // held: parts asked for and not yet multiplied
  Cursor next;

  __device__ Ring(const Work& w, uint4* parts, Barrier* full, int places) : parts(parts), full(full), places(places) {
    next.settle(w);
  }

  // Asks for parts of phases before `end` while there is room.
  __device__ void fill(const Work& w, int end) {
    for (; held < places && next.step < end; ++held) {
      uint32_t bytes;
      const bf16* row = next.place(w, bytes);
      if (threadIdx.x % 32 == 0) {
        arrive_and_expect(&full[to], bytes);
        load_row(parts + to * PART, row, bytes, &full[to]);
      }
      if (++to == places) to = 0;
      next.advance(w);
    }
  }

  __device__ const uint4* take() const {
    wait(&full[from], parity);
    return parts + from * PART;
  }

  // The warp has read the part: its place is free.
  __device__ void release() {
    publish_tile();
    __syncwarp();
    --held;
    if (++from == places) from = 0, parity ^= 1;
  }
};

// A warp for each output, and with two halves for the outputs of two matrices that lie one behind the other. `before` is
// what an output is added to.
template <int HALVES, typename Store>
__device__ void product(const Work& w, int step, Ring& ring, const uint4* x, const float* before, Store store) {
  const Matrix matrix = matrix_of(w, step / PHASES, step % PHASES);
  const int pieces = matrix.n / 8, end = ACROSS ? w.layers * PHASES : step + 1;
  for (int output = first_output(); output < matrix.outputs; output += WARPS * gridDim.x) {
    const float old = before ? __ldcg(before + output) : 0.0f;
    float sums[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      float sum = 0.0f;
      for (int first = 0; first < pieces; first += PART) {
        const uint4* part = ring.take();
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
          const int piece = i * 32 + threadIdx.x % 32;
          if (first + piece < pieces) sum += dot(part[piece], x[first + piece]);
        }
        ring.release();
        ring.fill(w, end);
      }
      sums[half] = warp_sum(sum);
    }
    if (threadIdx.x % 32 == 0) store(output, old, sums);
  }
}

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

// The activation that a phase multiplies into shared memory, then the product.
__device__ void multiply(const Work& w, int step, Ring& ring, Shared& shared) {
  const int width = w.heads * DIM, layer = step / PHASES, phase = step % PHASES;
  const float* stream = layer == 0 && phase <= OUT ? w.x : w.out;
  if (phase == QKV || phase == GATE_UP) {
    normalize(stream, w.gains + (int64_t(layer) * 2 + (phase == GATE_UP)) * width, width, w.epsilon, shared);
  } else {
    fetch(phase == OUT ? w.attended : w.active, phase == OUT ? width : w.inner, shared);
  }
  if (phase == QKV) {
    product<1>(w, step, ring, shared.x, nullptr,
               [&](int output, float, const float(&sums)[1]) { w.qkv[output] = sums[0]; });
  } else if (phase == GATE_UP) {
    product<2>(w, step, ring, shared.x, nullptr, [&](int output, float, const float(&sums)[2]) {
      w.active[output] = __float2bfloat16(sums[0] / (1.0f + __expf(-sums[0])) * sums[1]);
    });
  } else {
    product<1>(w, step, ring, shared.x, stream,
               [&](int output, float old, const float(&sums)[1]) { w.out[output] = old + sums[0]; });
  }
}

// Keys, values and gains of a layer are few bytes, on which the phases wait: asks for them early, into the L2 cache.
__device__ void prefetch_small(const Work& w, int layer) {
  const int64_t thread = int64_t(blockIdx.x) * THREADS + threadIdx.x, line = 128;
  const int64_t kept = int64_t(w.kv_heads) * w.tokens * DIM;
  const auto ask = [&](const bf16* from, int64_t count) {
    const auto bytes = reinterpret_cast<const char*>(from);
    for (int64_t i = thread * line; i < count * 2; i += gridDim.x * THREADS * line) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(bytes + i));
    }
  };
  ask(w.keys + layer * kept, kept);
  ask(w.values + layer * kept, kept);
  ask(w.gains + int64_t(layer) * 2 * w.heads * DIM, 2 * w.heads * DIM);
}

__global__ void __launch_bounds__(THREADS, 1) all_phases(Work work, unsigned* arrived, int places) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32, steps = work.layers * PHASES;
  if (threadIdx.x == 0) {
    for (int i = 0; i < WARPS * places; ++i) init(&shared.full[i / places][i % places], 1);
    publish_barriers();
  }
  __syncthreads();
  prefetch_small(work, 0);
  auto parts = reinterpret_cast<uint4*>(memory + sizeof(Shared)) + warp * places * PART;
  Ring ring(work, parts, shared.full[warp], places);
  for (int step = 0; step < steps; ++step) {
    const int layer = step / PHASES, phase = step % PHASES;
    if (step > 0) grid_barrier<THREADS>(arrived, step);
    if (!ACROSS || step == 0) ring.fill(work, ACROSS ? steps : step + 1);
    if (phase == DOWN && layer + 1 < work.layers) prefetch_small(work, layer + 1);
    if (phase == ATTEND) {
      for (int head = blockIdx.x; head < work.heads; head += gridDim.x) {
        Cache cache;
        load_cache(work, layer, head, 0, cache);
        attend(work, layer, head, cache, shared);
      }
    } else {
      multiply(work, step, ring, shared);
    }
  }
  // The last block to come here sets the counter back: all others have passed every barrier.
  if (threadIdx.x == THREADS - 1 && atomicAdd(arrived, 1) == steps * gridDim.x - 1) *arrived = 0;
}

// Width is heads * DIM, at most MOST, as is inner, a multiple of 8. `arrived` is a number, zero before the first call.
extern "C" int decode(const float* x, const float* cosines, const float* sines, const __nv_bfloat16* gains,
                      const __nv_bfloat16* qkv_weights, const __nv_bfloat16* out_weights,
                      const __nv_bfloat16* gate_up_weights, const __nv_bfloat16* down_weights,
                      const __nv_bfloat16* keys, const __nv_bfloat16* values, float* out, __nv_bfloat16* fresh,
                      float* qkv, __nv_bfloat16* attended, __nv_bfloat16* active, int* arrived, int layers, int heads,
                      int kv_heads, int inner, int tokens, float epsilon, cudaStream_t stream) {
  if (heads % kv_heads || heads * DIM > MOST || inner % 8 || inner > MOST) return cudaErrorInvalidValue;
  int blocks, memory;
  TRY(query_device(&blocks, cudaDevAttrMultiProcessorCount));
  TRY(query_device(&memory, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  constexpr int PLACE = WARPS * PART * sizeof(uint4);  // a place of each warp's ring
  int places = std::min<int>((memory - sizeof(Shared)) / PLACE, MOST_PLACES);
  memory = sizeof(Shared) + places * PLACE;
  if (places < 1) return cudaErrorNotSupported;
  TRY(cudaFuncSetAttribute(all_phases, cudaFuncAttributeMaxDynamicSharedMemorySize, memory));
  Work work = {x, cosines, sines, gains, qkv_weights, out_weights, gate_up_weights, down_weights, keys, values,
               out, fresh, qkv, attended, active, layers, heads, kv_heads, inner, tokens, epsilon};
  auto counter = reinterpret_cast<unsigned*>(arrived);
  void* arguments[] = {&work, &counter, &places};
  return cudaLaunchCooperativeKernel(all_phases, dim3(blocks), dim3(THREADS), arguments, memory, stream);
}
