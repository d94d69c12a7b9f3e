// The same filter with its taps in constant memory: multiply-adds take them as operands that a whole warp shares.
#include "kernel.cuh"

constexpr int TAPS = 64;
constexpr int THREADS = 256;
constexpr int EACH = 8;                     // results of a thread
constexpr int TILE = THREADS * EACH;        // results of a block
constexpr int PIECES = (TILE + TAPS) / 4;   // of four values, that a block's results need
constexpr int HALF = PIECES / 2 + 4;        // even pieces, then odd ones: both are written and read in all 32 banks

__constant__ float taps[TAPS];  // all lanes use the same one at a time, which is what the constant cache is for

// Four neighbours of the signal; those at `end` and beyond are zero, and no result needs them.
__device__ float4 load(const float* signal, int64_t at, int64_t end) {
  if (at + 3 < end) return *reinterpret_cast<const float4*>(signal + at);
  float4 piece = {};
  if (at + 0 < end) piece.x = signal[at + 0];
  if (at + 1 < end) piece.y = signal[at + 1];
  if (at + 2 < end) piece.z = signal[at + 2];
  return piece;
}

// out[i] is the sum over k of taps[k] * signal[i + k].
__global__ void __launch_bounds__(THREADS)
    filter(const float* __restrict__ signal, float* __restrict__ out, int64_t n) {
  __shared__ float4 pieces[2 * HALF];
  const int64_t first = int64_t(blockIdx.x) * TILE, own = first + threadIdx.x * EACH;
  for (int p = threadIdx.x; p < PIECES; p += THREADS) {
    pieces[p % 2 * HALF + p / 2] = load(signal, first + 4 * p, n + TAPS - 1);
  }
  __syncthreads();

  float sum[EACH] = {};
  float4 window[3] = {{}, pieces[threadIdx.x], pieces[HALF + threadIdx.x]};  // pieces 2t and 2t + 1 of thread t
#pragma unroll
  for (int k = 0; k < TAPS; k += 4) {
    const int next = k / 4 + 2;
    window[0] = window[1];
    window[1] = window[2];
    window[2] = pieces[next % 2 * HALF + threadIdx.x + next / 2];
    const float value[12] = {window[0].x, window[0].y, window[0].z, window[0].w, window[1].x, window[1].y,
                             window[1].z, window[1].w, window[2].x, window[2].y, window[2].z, window[2].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float tap = taps[k + j];
#pragma unroll
      for (int i = 0; i < EACH; ++i) sum[i] += tap * value[j + i];
    }
  }

  if (own + EACH <= n) {
    reinterpret_cast<float4*>(out + own)[0] = {sum[0], sum[1], sum[2], sum[3]};
    reinterpret_cast<float4*>(out + own)[1] = {sum[4], sum[5], sum[6], sum[7]};
  } else {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      if (own + i < n) out[own + i] = sum[i];
    }
  }
}

// `signal` has 63 values more than `out`.
extern "C" int filter_signal(const float* signal, const float* weights, float* out, int64_t n, cudaStream_t stream) {
  TRY(cudaMemcpyToSymbolAsync(taps, weights, sizeof(taps), 0, cudaMemcpyDeviceToDevice, stream));
  filter<<<ceil_div(n, TILE), THREADS, 0, stream>>>(signal, out, n);
  return cudaGetLastError();
}
