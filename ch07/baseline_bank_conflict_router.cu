// Softmax over 64 experts, a thread to a row of a tile in shared memory: all rows begin in the same bank.
#include "ampere.cuh"

constexpr int ROWS = 64;  // of a tile, and threads of a block

// Where a logit stands in the tile.
__device__ int place(int row, int expert, int pitch) { return row * pitch + expert; }

__global__ void __launch_bounds__(ROWS)
    softmax(const float* __restrict__ logits, float* __restrict__ out, int64_t rows, int experts, int pitch) {
  extern __shared__ float tile[];
  float* scales = tile + ROWS * pitch;  // of each row
  const int64_t first = int64_t(blockIdx.x) * ROWS, left = rows - first;
  const int count = left < ROWS ? int(left) : ROWS, thread = threadIdx.x;
  logits += first * experts;
  out += first * experts;

  for (int expert = thread; expert < experts; expert += ROWS) {  // the lanes of a warp run along a row
#pragma unroll 8
    for (int row = 0; row < count; ++row) {
      copy_async<4>(tile + place(row, expert, pitch), logits + row * experts + expert);
    }
  }
  wait_for_all_copies();
  __syncthreads();

  if (thread < count) {  // each lane has a row of its own, so together they read down a column
    float peak = -INFINITY, sum = 0.0f;
#pragma unroll 8
    for (int expert = 0; expert < experts; ++expert) peak = fmaxf(peak, tile[place(thread, expert, pitch)]);
#pragma unroll 8
    for (int expert = 0; expert < experts; ++expert) {
      float* weight = tile + place(thread, expert, pitch);
      sum += *weight = __expf(*weight - peak);
    }
    scales[thread] = 1.0f / sum;
  }
  __syncthreads();

  for (int expert = thread; expert < experts; expert += ROWS) {
#pragma unroll 8
    for (int row = 0; row < count; ++row) out[row * experts + expert] = tile[place(row, expert, pitch)] * scales[row];
  }
}

extern "C" int softmax_rows(const float* logits, float* out, int64_t rows, int experts, cudaStream_t stream) {
  const int pitch = experts;
  const size_t bytes = ROWS * (pitch + 1) * sizeof(float);  // more than 48 KB are refused by the launch
  softmax<<<ceil_div(rows, ROWS), ROWS, bytes, stream>>>(logits, out, rows, experts, pitch);
  return cudaGetLastError();
}
