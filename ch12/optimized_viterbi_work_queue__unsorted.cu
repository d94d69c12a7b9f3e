// Viterbi decoding by blocks that stay: each takes the next sequence, in the order given, when it has done its last.
#include "kernel.cuh"

constexpr int STATES = 64;  // and threads of a block, one for each
constexpr int WINDOW = 64;  // time steps whose back pointers are in shared memory while the path is followed
constexpr int CHAINS = 4;   // comparisons that do not wait for each other

struct Shared {
  float4 scores[2][STATES / 4];
  uint4 came[WINDOW * STATES / 16];  // a byte for each state: where it came from
  int path[WINDOW];
  int next;
};

// The best path through one sequence; of equal ones, that of the lowest numbers. A thread has its state's column of the
// transitions, and leaves in `back` from which state the best path to its own came.
__device__ void decode(const float* emissions, const float (&column)[STATES], int64_t begin, int length, uint8_t* back,
                       int* path, Shared& shared) {
  const int state = threadIdx.x;
  const float* own = emissions + begin * STATES + state;
  float ahead[CHAINS];  // what is emitted in the next steps, on its way
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) ahead[i] = i + 1 < length ? own[(i + 1) * STATES] : 0.0f;
  reinterpret_cast<float*>(shared.scores[0])[state] = own[0];
  __syncthreads();
  for (int step = 1; step < length; ++step) {
    const float emitted = ahead[0];
#pragma unroll
    for (int i = 0; i + 1 < CHAINS; ++i) ahead[i] = ahead[i + 1];
    ahead[CHAINS - 1] = step + CHAINS < length ? own[int64_t(step + CHAINS) * STATES] : 0.0f;
    float best[CHAINS];
    int from[CHAINS];
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) {  // of 16 neighbouring states each
#pragma unroll
      for (int i = 0; i < STATES / CHAINS / 4; ++i) {
        const int first = chain * (STATES / CHAINS) + 4 * i;
        const float4 four = shared.scores[(step - 1) % 2][first / 4];
        const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float score = values[k] + column[first + k];
          const bool better = (i == 0 && k == 0) || score > best[chain];
          best[chain] = better ? score : best[chain];
          from[chain] = better ? first + k : from[chain];
        }
      }
    }
#pragma unroll
    for (int chain = 1; chain < CHAINS; ++chain) {
      const bool better = best[chain] > best[0];
      best[0] = better ? best[chain] : best[0];
      from[0] = better ? from[chain] : from[0];
    }
    back[(begin + step) * STATES + state] = from[0];
    reinterpret_cast<float*>(shared.scores[step % 2])[state] = best[0] + emitted;
    __syncthreads();
  }

  int at = 0;  // of the first thread, which follows the path
  if (threadIdx.x == 0) {
    const float* scores = reinterpret_cast<const float*>(shared.scores[(length - 1) % 2]);
    for (int i = 1; i < STATES; ++i) {
      if (scores[i] > scores[at]) at = i;
    }
  }
  for (int top = length; top > 0; top -= WINDOW) {
    const int low = top > WINDOW ? top - WINDOW : 0, rows = top - low;
    auto source = reinterpret_cast<const uint4*>(back + (begin + low) * STATES);
    for (int i = threadIdx.x; i < rows * STATES / 16; i += STATES) shared.came[i] = source[i];
    __syncthreads();
    if (threadIdx.x == 0) {
      auto came = reinterpret_cast<const uint8_t*>(shared.came);
      for (int row = rows - 1; row >= 0; --row) {
        shared.path[row] = at;
        if (low + row > 0) at = came[row * STATES + at];
      }
    }
    __syncthreads();
    if (threadIdx.x < rows) path[begin + low + threadIdx.x] = shared.path[threadIdx.x];
  }
}

__device__ void load_column(const float* transitions, float (&column)[STATES]) {
#pragma unroll
  for (int i = 0; i < STATES; ++i) column[i] = transitions[i * STATES + threadIdx.x];
}

// As many blocks as the GPU holds at once, and not more than there are sequences.
template <typename Kernel>
cudaError_t resident_blocks(Kernel kernel, int count, int* blocks) {
  TRY(count_resident(blocks, kernel, STATES));
  if (*blocks > count) *blocks = count;
  return cudaSuccess;
}

__global__ void __launch_bounds__(STATES) queued(const float* emissions, const float* transitions,
                                                 const int64_t* starts, uint8_t* back, int* path, int* taken,
                                                 int count) {
  __shared__ Shared shared;
  float column[STATES];
  load_column(transitions, column);
  for (;;) {
    if (threadIdx.x == 0) shared.next = atomicAdd(taken, 1);
    __syncthreads();
    if (shared.next >= count) return;
    const int64_t begin = starts[shared.next];
    decode(emissions, column, begin, starts[shared.next + 1] - begin, back, path, shared);
    __syncthreads();
  }
}

// emissions [tokens, STATES], transitions [from, to], starts [count + 1], back [tokens, STATES], path [tokens]; taken
// is one number of scratch.
extern "C" int viterbi(const float* emissions, const float* transitions, const int64_t* starts, uint8_t* back,
                       int* path, int* taken, int count, cudaStream_t stream) {
  int blocks = 0;
  TRY(resident_blocks(queued, count, &blocks));
  TRY(cudaMemsetAsync(taken, 0, sizeof(int), stream));
  queued<<<blocks, STATES, 0, stream>>>(emissions, transitions, starts, back, path, taken, count);
  return cudaGetLastError();
}
