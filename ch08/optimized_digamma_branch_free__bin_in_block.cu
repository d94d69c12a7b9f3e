// Digamma by branches, but a block first sorts its numbers by case: then nearly all lanes of a warp agree.
#include "kernel.cuh"
#include "special.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int EACH = 4;   // numbers of a thread
constexpr int CASES = 3;  // negative, small, large

__device__ float logarithm(float x) { return log2_special(x) * 0.69314718f; }

// ln x - 1 / 2x - 1 / 12x^2 + 1 / 120x^4 - 1 / 252x^6: exact to fp32 from 6 on.
__device__ float series(float x) {
  const float inverse = reciprocal_special(x), square = inverse * inverse;
  const float tail = square * fmaf(square, fmaf(square, 1.0f / 252, -1.0f / 120), 1.0f / 12);
  return logarithm(x) - fmaf(0.5f, inverse, tail);
}

// pi / tan(pi x), which is what digamma(1 - x) has more than digamma(x): the cosine of pi r over sin(pi r) / pi, with r
// at most 1/2. Both are polynomials of r^2, fitted by Lawson's method; the cosine is off by at most 5e-8.
__device__ float reflection(float x) {
  const float r = x - rintf(x), s = r * r;
  float cosine = fmaf(s, 0.2196968f, -1.3318802f), sine = fmaf(s, 0.024688238f, -0.19042638f);
  cosine = fmaf(s, cosine, 4.058412f), sine = fmaf(s, sine, 0.8117124f);
  cosine = fmaf(s, cosine, -4.934793f), sine = fmaf(s, sine, -1.6449331f);
  cosine = fmaf(s, cosine, 0.99999994f), sine = fmaf(s, sine, 1.0f);
  return cosine * reciprocal_special(r * sine);
}

__device__ float digamma_of(float x) {
  float shift = 0.0f;
  if (x < 0.0f) {
    shift = -reflection(x);
    x = 1.0f - x;
  }
  while (x < 6.0f) {
    shift -= reciprocal_special(x);
    x += 1.0f;
  }
  return series(x) + shift;
}

__device__ int case_of(float x) { return x < 0.0f ? 0 : x < 6.0f ? 1 : 2; }

// Gives every number of the block a place, from 0 to EACH * THREADS - 1, in order of their cases.
__device__ __forceinline__ void sort(const float (&x)[EACH], int (&place)[EACH]) {
  __shared__ int start[CASES][WARPS];  // at first how many numbers of each case each warp has
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int before[CASES] = {};  // numbers of each case in the warp's earlier rounds
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const uint32_t negative = __ballot_sync(~0u, x[k] < 0.0f), below = __ballot_sync(~0u, x[k] < 6.0f);
    const uint32_t lanes[CASES] = {negative, below & ~negative, ~below};
    place[k] = 0;
#pragma unroll
    for (int c = 0; c < CASES; ++c) {
      const int at = before[c] + __popc(lanes[c] & ((1u << lane) - 1));
      place[k] = lanes[c] >> lane & 1 ? at : place[k];
      before[c] += __popc(lanes[c]);
    }
  }
  if (lane == 0) {
#pragma unroll
    for (int c = 0; c < CASES; ++c) start[c][warp] = before[c];
  }
  __syncthreads();
  if (warp == 0) {  // a running sum over cases and, within a case, over warps: a lane for each
    const int mine = lane < CASES * WARPS ? start[0][lane] : 0;
    int sum = mine;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int left = __shfl_up_sync(~0u, sum, lanes);
      if (lane >= lanes) sum += left;
    }
    if (lane < CASES * WARPS) start[0][lane] = sum - mine;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < EACH; ++k) place[k] += start[case_of(x[k])][warp];
}

__global__ void __launch_bounds__(THREADS)
    digamma_sorted(const float* __restrict__ x, float* __restrict__ out, int64_t n) {
  __shared__ float sorted[EACH * THREADS], results[EACH * THREADS];
  __shared__ uint16_t origin[EACH * THREADS];
  const int64_t first = int64_t(blockIdx.x) * EACH * THREADS;
  float mine[EACH];
  int place[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int64_t at = first + k * THREADS + threadIdx.x;
    mine[k] = at < n ? x[at] : 6.0f;
  }
  sort(mine, place);
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    sorted[place[k]] = mine[k];
    origin[place[k]] = k * THREADS + threadIdx.x;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    results[origin[k * THREADS + threadIdx.x]] = digamma_of(sorted[k * THREADS + threadIdx.x]);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int64_t at = first + k * THREADS + threadIdx.x;
    if (at < n) out[at] = results[k * THREADS + threadIdx.x];
  }
}

extern "C" int digamma(const float* x, float* out, int64_t n, cudaStream_t stream) {
  digamma_sorted<<<ceil_div(n, EACH * THREADS), THREADS, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
