// Loss-scaled updates: the host reads whether the gradients are finite, and launches AdamW if so.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int BLOCKS = 1024;  // at most; they stride over longer tensors
constexpr float RATE = 1e-3f, DECAY = 0.1f, BETA1 = 0.9f, BETA2 = 0.999f, EPSILON = 1e-8f;

// found becomes 1 if a gradient is infinite or not a number.
__global__ void check(const float* gradients, int* found, int64_t n) {
  bool bad = false;
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) {
    bad |= !isfinite(gradients[i]);
  }
  if (bad) *found = 1;  // whoever writes it writes the same
}

// One thread: sound gradients count as an update, others halve the scale of the loss from here on.
__global__ void decide(int* found, float* scale, float* updates, int* verdict) {
  const int sound = *found == 0;
  *found = 0;
  if (sound) {
    *updates += 1.0f;
  } else {
    *scale = fmaxf(*scale * 0.5f, 1.0f);
  }
  *verdict = sound;
}

__global__ void update(const float* gradients, float* parameters, float* means, float* squares, const float* scale,
                       const float* updates, int64_t n) {
  const float inverse = 1.0f / *scale, unbias1 = 1.0f - powf(BETA1, *updates), unbias2 = 1.0f - powf(BETA2, *updates);
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) {
    const float gradient = gradients[i] * inverse;
    const float mean = means[i] = BETA1 * means[i] + (1.0f - BETA1) * gradient;
    const float square = squares[i] = BETA2 * squares[i] + (1.0f - BETA2) * gradient * gradient;
    const float change = mean / unbias1 / (sqrtf(square / unbias2) + EPSILON);
    parameters[i] = parameters[i] * (1.0f - RATE * DECAY) - RATE * change;
  }
}

int64_t blocks_for(int64_t n) { return ceil_div(n, THREADS) < BLOCKS ? ceil_div(n, THREADS) : BLOCKS; }

// gradients [count, n]; found and verdict are each one number of scratch; seen is page-locked.
extern "C" int train(const float* gradients, float* parameters, float* means, float* squares, float* scale,
                     float* updates, int* found, int* verdict, int* seen, int count, int64_t n, cudaStream_t stream) {
  TRY(cudaMemsetAsync(found, 0, sizeof(int), stream));
  for (int64_t i = 0; i < count; ++i) {
    const float* own = gradients + i * n;
    check<<<blocks_for(n), THREADS, 0, stream>>>(own, found, n);
    decide<<<1, 1, 0, stream>>>(found, scale, updates, verdict);
    TRY(cudaMemcpyAsync(seen, verdict, sizeof(int), cudaMemcpyDeviceToHost, stream));
    TRY(cudaStreamSynchronize(stream));
    if (*seen) {
      update<<<blocks_for(n), THREADS, 0, stream>>>(own, parameters, means, squares, scale, updates, n);
    }
  }
  return cudaGetLastError();
}
