// Hadamard rotation of rows of 128 in shared memory: seven stages of butterflies, and a barrier before each.
#include "kernel.cuh"

constexpr int COLUMNS = 128, PAIRS = COLUMNS / 2;
constexpr int ROWS = 4;  // of a block, each by 64 threads
constexpr float SCALE = 0.08838834764831845f;  // 1 / sqrt(128): the rotation keeps a row's length

__global__ void __launch_bounds__(ROWS* PAIRS)
    rotate(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ out, int64_t rows) {
  __shared__ float values[ROWS][COLUMNS];
  const int pair = threadIdx.x;
  float* value = values[threadIdx.y];
  const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
  if (row < rows) {
    const float2 both = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(x)[row * PAIRS + pair]);
    value[2 * pair] = both.x;
    value[2 * pair + 1] = both.y;
  }
#pragma unroll
  for (int apart = 1; apart < COLUMNS; apart *= 2) {
    __syncthreads();  // the last stage's sums are there
    const int at = pair / apart * 2 * apart + pair % apart;
    const float a = value[at], b = value[at + apart];
    value[at] = a + b;
    value[at + apart] = a - b;
  }
  __syncthreads();
  if (row < rows) {
    reinterpret_cast<__nv_bfloat162*>(out)[row * PAIRS + pair] =
        __floats2bfloat162_rn(SCALE * value[2 * pair], SCALE * value[2 * pair + 1]);
  }
}

extern "C" int rotate_rows(const __nv_bfloat16* x, __nv_bfloat16* out, int64_t rows, cudaStream_t stream) {
  rotate<<<ceil_div(rows, ROWS), dim3(PAIRS, ROWS), 0, stream>>>(x, out, rows);
  return cudaGetLastError();
}
