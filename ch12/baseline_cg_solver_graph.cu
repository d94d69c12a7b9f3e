// Conjugate gradients as a loop over five small kernels: every one of the thousand is launched by the host.
#include "kernel.cuh"

constexpr int THREADS = 256;

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// The sum over a block, whose threads must all be here; the first warp gets it.
__device__ float block_sum(float value) {
  __shared__ float warps[THREADS / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(threadIdx.x < THREADS / 32 ? warps[threadIdx.x] : 0.0f);
}

// The sum of what each of `blocks` blocks has left; one block adds them up, always in the same order.
__device__ float sum_of(const float* sums, int blocks) {
  float value = 0.0f;
  for (int i = threadIdx.x; i < blocks; i += THREADS) value += sums[i];
  return block_sum(value);
}

// Where nothing is left to divide by, the residual has vanished: the solution stays as it is.
__device__ float ratio(float a, float b) { return b > 0.0f ? a / b : 0.0f; }

// What stays on the GPU between the kernels: the squared length of the residual, and the two step lengths.
struct Scalars {
  float squared, alpha, beta;
};

__global__ void start(const float* b, float* x, float* r, float* p, float* sums, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  const float value = i < n ? b[i] : 0.0f;
  if (i < n) {
    x[i] = 0.0f;
    r[i] = value;
    p[i] = value;
  }
  const float sum = block_sum(value * value);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void measure(const float* sums, int blocks, Scalars* scalars) {
  const float squared = sum_of(sums, blocks);
  if (threadIdx.x == 0) scalars->squared = squared;
}

// q = p + tau * (4 p - its neighbours), on a grid that closes on itself; and p * q
__global__ void apply(const float* p, float* q, float* sums, int rows, int columns, float tau) {
  const int i = blockIdx.x * THREADS + threadIdx.x, n = rows * columns;
  float product = 0.0f;
  if (i < n) {
    const int column = i % columns;
    const float left = p[column > 0 ? i - 1 : i + columns - 1];
    const float right = p[column < columns - 1 ? i + 1 : i - columns + 1];
    const float above = p[i >= columns ? i - columns : i + n - columns];
    const float below = p[i < n - columns ? i + columns : i - n + columns];
    const float own = p[i];
    const float value = own + tau * (4.0f * own - left - right - above - below);
    q[i] = value;
    product = own * value;
  }
  const float sum = block_sum(product);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void find_alpha(const float* sums, int blocks, Scalars* scalars) {
  const float curvature = sum_of(sums, blocks);
  if (threadIdx.x == 0) scalars->alpha = ratio(scalars->squared, curvature);
}

__global__ void advance(const float* p, const float* q, float* x, float* r, float* sums, const Scalars* scalars,
                        int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  float residual = 0.0f;
  if (i < n) {
    const float alpha = scalars->alpha;
    x[i] += alpha * p[i];
    r[i] = residual = r[i] - alpha * q[i];
  }
  const float sum = block_sum(residual * residual);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void find_beta(const float* sums, int blocks, Scalars* scalars) {
  const float squared = sum_of(sums, blocks);
  if (threadIdx.x == 0) {
    scalars->beta = ratio(squared, scalars->squared);
    scalars->squared = squared;
  }
}

__global__ void turn(const float* r, float* p, const Scalars* scalars, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) p[i] = r[i] + scalars->beta * p[i];
}

// r, p and q are as long as x; sums has room for a float a block of 256 unknowns, scalars for three.
extern "C" int solve(const float* b, float* x, float* r, float* p, float* q, float* sums, float* scalars, int rows,
                     int columns, float tau, int iterations, cudaStream_t stream) {
  const int n = rows * columns, blocks = ceil_div(n, THREADS);
  auto s = reinterpret_cast<Scalars*>(scalars);
  start<<<blocks, THREADS, 0, stream>>>(b, x, r, p, sums, n);
  measure<<<1, THREADS, 0, stream>>>(sums, blocks, s);
  for (int k = 0; k < iterations; ++k) {
    apply<<<blocks, THREADS, 0, stream>>>(p, q, sums, rows, columns, tau);
    find_alpha<<<1, THREADS, 0, stream>>>(sums, blocks, s);
    advance<<<blocks, THREADS, 0, stream>>>(p, q, x, r, sums, s, n);
    find_beta<<<1, THREADS, 0, stream>>>(sums, blocks, s);
    turn<<<blocks, THREADS, 0, stream>>>(r, p, s, n);
  }
  return cudaGetLastError();
}
