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

// The ratio of two sums of what all blocks have left. Every warp adds them up, in one order: none waits for another.
__device__ float ratio(const float* above, const float* below) {
  float a = 0.0f, b = 0.0f;
#pragma unroll 1
  for (int i = threadIdx.x % 32, blocks = gridDim.x; i < blocks; i += 64) {  // two of each are on their way at once
    const bool both = i + 32 < blocks;
    a += above[i] + (both ? above[i + 32] : 0.0f);
    b += below[i] + (both ? below[i + 32] : 0.0f);
  }
  a = warp_sum(a);
  b = warp_sum(b);
  return b > 0.0f ? a / b : 0.0f;  // nothing left to divide by: the residual has vanished, and the solution stays
}

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
  const int i = blockIdx.x * THREADS + threadIdx.x, n = rows * columns, column = i % columns;
  const int left = column > 0 ? i - 1 : i + columns - 1, right = column < columns - 1 ? i + 1 : i - columns + 1;
  const int above = i >= columns ? i - columns : i + n - columns;
  const int below = i < n - columns ? i + columns : i - n + columns;
  const int at[] = {i, left, right, above, below};
  float residual[5] = {}, direction[5] = {};
  if (i < n) {
#pragma unroll
    for (int k = 0; k < 5; ++k) {  // asked for before the sums are, so that one wait is in the other
      residual[k] = r[at[k]];
      direction[k] = old[at[k]];
    }
  }
  const float beta = ratio(now, before);
#pragma unroll
  for (int k = 0; k < 5; ++k) direction[k] = fmaf(beta, direction[k], residual[k]);
  const float own = direction[0];
  const float value = own + tau * (4.0f * own - direction[1] - direction[2] - direction[3] - direction[4]);
  if (i < n) {
    p[i] = own;
    q[i] = value;
  }
  leave_sum(own * value, curvature);
}

// A step of length alpha along p; and what is then left
__global__ void advance(const float* p, const float* q, float* x, float* r, const float* now, const float* curvature,
                        float* next, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  const bool here = i < n;
  const float along = here ? p[i] : 0.0f, across = here ? q[i] : 0.0f;
  const float solution = here ? x[i] : 0.0f, residual = here ? r[i] : 0.0f;
  const float alpha = ratio(now, curvature), left = residual - alpha * across;
  if (here) {
    x[i] = solution + alpha * along;
    r[i] = left;
  }
  leave_sum(left * left, next);
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
