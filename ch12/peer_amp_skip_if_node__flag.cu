// Loss-scaled updates without a branch of the graph: AdamW always starts, and ends at once if a flag tells it to.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int BLOCKS = 1024;  // at most; they stride over longer tensors
constexpr float RATE = 1e-3f, DECAY = 0.1f, BETA1 = 0.9f, BETA2 = 0.999f, EPSILON = 1e-8f;

// Looks for gradients that are infinite or not a number. The last block to end decides: sound gradients count as an update,
// others halve the scale of the loss from here on. state: blocks that have found one, and blocks that have ended; both
// are 0 again at the end.
__global__ void check(const float* gradients, int* state, float* scale, float* updates, int* verdict,
                      int64_t n) {
  bool bad = false;
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) {
    bad |= !isfinite(gradients[i]);
  }
  bad = __syncthreads_or(bad);
  if (threadIdx.x > 0) return;
  if (bad) atomicAdd(state, 1);
  __threadfence();
  if (atomicAdd(state + 1, 1) + 1 < int(gridDim.x)) return;
  const int sound = atomicExch(state, 0) == 0;
  state[1] = 0;
  if (sound) {
    *updates += 1.0f;
  } else {
    *scale = fmaxf(*scale * 0.5f, 1.0f);
  }
  *verdict = sound;
}

__global__ void update(const float* gradients, float* parameters, float* means, float* squares, const float* scale,
                       const float* updates, const int* sound, int64_t n) {
  if (!*sound) return;
  const float inverse = 1.0f / *scale, unbias1 = 1.0f - powf(BETA1, *updates), unbias2 = 1.0f - powf(BETA2, *updates);
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) {
    const float gradient = gradients[i] * inverse;
    const float mean = means[i] = BETA1 * means[i] + (1.0f - BETA1) * gradient;
    const float square = squares[i] = BETA2 * squares[i] + (1.0f - BETA2) * gradient * gradient;
    const float change = mean / unbias1 / (sqrtf(square / unbias2) + EPSILON);
    parameters[i] = parameters[i] * (1.0f - RATE * DECAY) - RATE * change;
  }
}

// gradients [count, n]; state is two numbers of scratch, which must be 0, and are so again at the end.
extern "C" int train(const float* gradients, float* parameters, float* means, float* squares, float* scale,
                     float* updates, int* state, int* verdict, int count, int64_t n, cudaStream_t stream) {
  const int64_t blocks = ceil_div(n, THREADS) < BLOCKS ? ceil_div(n, THREADS) : BLOCKS;
  for (int64_t i = 0; i < count; ++i) {
    const float* own = gradients + i * n;
    check<<<blocks, THREADS, 0, stream>>>(own, state, scale, updates, verdict, n);
    update<<<blocks, THREADS, 0, stream>>>(own, parameters, means, squares, scale, updates, verdict, n);
  }
  return cudaGetLastError();
}
