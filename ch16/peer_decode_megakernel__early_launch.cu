// Decoder blocks for one token, five kernels each, which start early: a kernel asks for its first weights, then waits.
#include "decode.cuh"
#include "grid.cuh"

constexpr int PIECES = 8;          // of 16 bytes, that a lane loads of a row at once
constexpr int PART = PIECES * 32;  // pieces of a warp

// A warp's part of a row of weights into registers; zeros behind the row's end.
__device__ void load(const bf16* row, int first, int pieces, uint4 (&own)[PIECES]) {
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    const int piece = first + i * 32 + threadIdx.x % 32;
    own[i] = make_uint4(0, 0, 0, 0);
    if (piece < pieces) own[i] = __ldcs(reinterpret_cast<const uint4*>(row) + piece);
  }
}

// The first part of what the warp will multiply in this matrix.
__device__ void load_first(const Matrix& matrix, uint4 (&own)[PIECES]) {
  const int64_t output = first_output();
  if (output < matrix.outputs) load(matrix.weights + output * matrix.n, 0, matrix.n / 8, own);
}

// A warp for each output, and with two halves for the outputs of two matrices that lie one behind the other. The first
// part is loaded already.
template <int HALVES, typename Store>
__device__ void product(const Matrix& matrix, const uint4* x, uint4 (&own)[PIECES], Store store) {
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

__global__ void __launch_bounds__(THREADS, 1) multiply_early(Work w, int layer, int phase) {
  __shared__ Shared shared;
  const int width = w.heads * DIM;
  const float* stream = layer == 0 && phase <= OUT ? w.x : w.out;
  const Matrix matrix = matrix_of(w, layer, phase);
  uint4 own[PIECES];
  start_next();
  load_first(matrix, own);
  wait_for_last();  // nothing above depends on the kernels before
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
    product<1>(matrix, shared.x, own,
               [&](int output, const float(&sums)[1]) { w.out[output] = __ldcg(stream + output) + sums[0]; });
  }
}

__global__ void __launch_bounds__(THREADS, 1) attend_early(Work w, int layer) {
  __shared__ Shared shared;
  start_next();
  const int head = blockIdx.x;  // a block for each
  Cache cache;
  load_cache(w, layer, head, 0, cache);
  wait_for_last();
  attend(w, layer, head, cache, shared);
}

// Width is heads * DIM, at most MOST, as is inner, a multiple of 8.
extern "C" int decode(const float* x, const float* cosines, const float* sines, const __nv_bfloat16* gains,
                      const __nv_bfloat16* qkv_weights, const __nv_bfloat16* out_weights,
                      const __nv_bfloat16* gate_up_weights, const __nv_bfloat16* down_weights,
                      const __nv_bfloat16* keys, const __nv_bfloat16* values, float* out, __nv_bfloat16* fresh,
                      float* qkv, __nv_bfloat16* attended, __nv_bfloat16* active, int layers, int heads, int kv_heads,
                      int inner, int tokens, float epsilon, cudaStream_t stream) {
  if (heads % kv_heads || heads * DIM > MOST || inner % 8 || inner > MOST) return cudaErrorInvalidValue;
  int blocks;
  TRY(query_device(&blocks, cudaDevAttrMultiProcessorCount));
  const Work work = {x, cosines, sines, gains, qkv_weights, out_weights, gate_up_weights, down_weights, keys, values,
                     out, fresh, qkv, attended, active, layers, heads, kv_heads, inner, tokens, epsilon};
  for (int layer = 0; layer < layers; ++layer) {
    for (int phase = 0; phase < PHASES; ++phase) {
      const bool early = layer > 0 || phase > 0;  // the first kernel waits for all that comes before the graph
      if (phase == ATTEND) {
        TRY(launch_early(early, attend_early, heads, THREADS, stream, work, layer));
      } else {
        TRY(launch_early(early, multiply_early, blocks, THREADS, stream, work, layer, phase));
      }
    }
  }
  return cudaGetLastError();
}
