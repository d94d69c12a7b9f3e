// Conjugate gradients in two kernels an iteration: one for each sum over all unknowns that the next kernel waits for.
#include "kernel.cuh"

constexpr int THREADS = 256;

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// Leave the sum over a block, whose threads must all be here, for the next kernel.
__device__ void leave_sum(float value, float* sums) {
  __shared__ float warps[THREADS / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  value = warp_sum(threadIdx.x < THREADS / 32 ? warps[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) sums[blockIdx.x] = value;
}

// The sum of what all blocks have left. Every warp adds it up, in one order: none waits for a block that does.
__device__ float sum_of(const float* sums) {
  float value = 0.0f;
  for (int i = threadIdx.x % 32; i < gridDim.x; i += 32) value += sums[i];
  return warp_sum(value);
}

// Where nothing is left to divide by, the residual has vanished: the solution stays as it is.
__device__ float ratio(float a, float b) { return b > 0.0f ? a / b : 0.0f; }

// The squared length of the residual is there twice, as it is and as it was; p was zero.
__global__ void start(const float* b, float* x, float* r, float* p, float* now, float* before, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  const float value = i < n ? b[i] : 0.0f;
  if (i < n) {
    x[i] = 0.0f;
    r[i] = value;
    p[i] = 0.0f;
  }
  leave_sum(value * value, now);
  if (threadIdx.x == 0) before[blockIdx.x] = now[blockIdx.x];
}

// p = r + beta * p, which goes elsewhere, for neighbours are read; q = p + tau * (4 p - its neighbours); and p * q
__global__ void apply(const float* r, const float* old, float* p, float* q, const float* now, const float* before,
                      float* curvature, int rows, int columns, float tau) {
  const int i = blockIdx.x * THREADS + threadIdx.x, n = rows * columns;
  const float beta = ratio(sum_of(now), sum_of(before));
  float product = 0.0f;
  if (i < n) {
    const int column = i % columns;
    auto turned = [&](int at) { return fmaf(beta, old[at], r[at]); };
    const float left = turned(column > 0 ? i - 1 : i + columns - 1);
    const float right = turned(column < columns - 1 ? i + 1 : i - columns + 1);
    const float above = turned(i >= columns ? i - columns : i + n - columns);
    const float below = turned(i < n - columns ? i + columns : i - n + columns);
    const float own = turned(i);
    const float value = own + tau * (4.0f * own - left - right - above - below);
    p[i] = own;
    q[i] = value;
    product = own * value;
  }
  leave_sum(product, curvature);
}

// A step of length alpha along p; and what is then left
__global__ void advance(const float* p, const float* q, float* x, float* r, const float* now, const float* curvature,
                        float* next, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  const float alpha = ratio(sum_of(now), sum_of(curvature));
  float residual = 0.0f;
  if (i < n) {
    x[i] += alpha * p[i];
    r[i] = residual = r[i] - alpha * q[i];
  }
  leave_sum(residual * residual, next);
}

// x, r and q are as long as b, p is twice as long; sums has room for three floats a block of 256 unknowns.
extern "C" int solve(const float* b, float* x, float* r, float* p, float* q, float* sums, int rows, int columns,
                     float tau, int iterations, cudaStream_t stream) {
  const int n = rows * columns, blocks = ceil_div(n, THREADS);
  float *now = sums, *before = sums + blocks, *curvature = sums + 2 * blocks, *old = p + n;
  start<<<blocks, THREADS, 0, stream>>>(b, x, r, old, now, before, n);
  for (int k = 0; k < iterations; ++k) {
    apply<<<blocks, THREADS, 0, stream>>>(r, old, p, q, now, before, curvature, rows, columns, tau);
    advance<<<blocks, THREADS, 0, stream>>>(p, q, x, r, now, curvature, before, n);
    float *spare = now, *turned = old;
    now = before, before = spare;
    old = p, p = turned;
  }
  return cudaGetLastError();
}
