// Decoder blocks for one token in one kernel: each warp has a ring of weights, which fills across the grid's barriers.
#include "decode.cuh"
#include "tma.cuh"

#include <algorithm>

constexpr int PIECES = 4;          // of 16 bytes, that a lane takes of a row at once
constexpr int PART = PIECES * 32;  // pieces of a warp, and of a place in its ring
constexpr int MOST_PLACES = 3;     // of a ring

// All blocks have come here `times` times. Its release and acquire reach what all threads of the blocks wrote, since
// barriers of the block stand before and behind them: no fence beside them is needed.
__device__ void meet(unsigned* arrived, unsigned times) {
  __syncthreads();
  if (threadIdx.x == THREADS - 1) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    unsigned seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    } while (seen < times * gridDim.x);
  }
  __syncthreads();
}

struct Barriers {
  Barrier full[WARPS][MOST_PLACES];
};

constexpr int FIXED = sizeof(Shared) + sizeof(Barriers);  // bytes of shared memory before the rings

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

// A warp for each output, and with two halves for the outputs of two matrices that lie one behind the other. An output
// is added to `before`.
template <int HALVES, typename Store>
__device__ void product(const Work& w, int step, Ring& ring, const uint4* x, const float* before, Store store) {
  const Matrix matrix = matrix_of(w, step / PHASES, step % PHASES);
  const int pieces = matrix.n / 8, end = w.layers * PHASES;
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
  Barriers& barriers = *reinterpret_cast<Barriers*>(memory + sizeof(Shared));
  const int warp = threadIdx.x / 32, steps = work.layers * PHASES;
  if (threadIdx.x == 0) {
    for (int i = 0; i < WARPS * places; ++i) init(&barriers.full[i / places][i % places], 1);
    publish_barriers();
  }
  __syncthreads();
  prefetch_small(work, 0);
  auto parts = reinterpret_cast<uint4*>(memory + FIXED) + warp * places * PART;
  Ring ring(work, parts, barriers.full[warp], places);
  for (int step = 0; step < steps; ++step) {
    const int layer = step / PHASES, phase = step % PHASES;
    const bool attends = phase == ATTEND && blockIdx.x < work.heads;
    Cache cache;
    if (attends) load_cache(work, layer, blockIdx.x, 0, cache);  // before the wait: they are not of this step
    if (step > 0) meet(arrived, step);
    if (step == 0) ring.fill(work, steps);
    if (phase == DOWN && layer + 1 < work.layers) prefetch_small(work, layer + 1);
    if (attends) {
      attend(work, layer, blockIdx.x, cache, shared);
    } else if (phase != ATTEND) {
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
  int places = std::min<int>((memory - FIXED) / PLACE, MOST_PLACES);
  memory = FIXED + places * PLACE;
  if (places < 1 || blocks < heads) return cudaErrorNotSupported;
  TRY(cudaFuncSetAttribute(all_phases, cudaFuncAttributeMaxDynamicSharedMemorySize, memory));
  Work work = {x, cosines, sines, gains, qkv_weights, out_weights, gate_up_weights, down_weights, keys, values,
               out, fresh, qkv, attended, active, layers, heads, kv_heads, inner, tokens, epsilon};
  auto counter = reinterpret_cast<unsigned*>(arrived);
  void* arguments[] = {&work, &counter, &places};
  return cudaLaunchCooperativeKernel(all_phases, dim3(blocks), dim3(THREADS), arguments, memory, stream);
}
