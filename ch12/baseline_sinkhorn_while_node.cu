// Sinkhorn's iteration as a loop on the host: after each one the host reads back whether another is needed.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int MOST = 1000;  // iterations, should the masses never fit

struct Progress {
  int iterations, unfinished;
};

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// The weights exp(-distance / epsilon), and transposed, so that both directions read along rows; rows scaled by one.
__global__ void start(const float* distances, float* weights, float* turned, float* u, Progress* progress, int rows,
                      int columns, float epsilon) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= rows * columns) return;
  const int row = i / columns, column = i % columns;
  const float weight = expf(-distances[i] / epsilon);
  weights[i] = weight;
  turned[column * rows + row] = weight;
  if (column == 0) u[row] = 1.0f;
  if (i == 0) progress->iterations = 0;
}

// A warp a row: the scale that gives it the mass it should have and, if asked for, by how much its old one missed that.
__global__ void rescale(const float* weights, const float* other, const float* mass, float* own, float* gaps, int rows,
                        int columns) {
  const int row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  float sum = 0.0f;
#pragma unroll 8
  for (int column = threadIdx.x % 32; column < columns; column += 32) {
    sum += weights[row * columns + column] * other[column];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 != 0) return;
  if (gaps) gaps[row] = fabsf(own[row] * sum - mass[row]);
  own[row] = mass[row] / sum;
}

// One block: are the rows' masses still off by more than `tolerance` in all?
__global__ void judge(const float* gaps, Progress* progress, int rows, float tolerance) {
  __shared__ float warps[WARPS];
  float sum = 0.0f;
  for (int row = threadIdx.x; row < rows; row += THREADS) sum += gaps[row];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += warps[warp];
  progress->unfinished = ++progress->iterations < MOST && total > tolerance;
}

__global__ void scale(const float* weights, const float* u, const float* v, float* plan, int rows, int columns) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < rows * columns) plan[i] = u[i / columns] * weights[i] * v[i % columns];
}

// weights and turned are as long as distances, u and gaps have a number a row, v one a column; progress holds two ints.
extern "C" int balance(const float* distances, const float* row_mass, const float* column_mass, float* plan,
                       float* weights, float* turned, float* u, float* v, float* gaps, int* progress, int rows,
                       int columns, float epsilon, float tolerance, cudaStream_t stream) {
  const int blocks = ceil_div(int64_t(rows) * columns, THREADS);
  auto state = reinterpret_cast<Progress*>(progress);
  start<<<blocks, THREADS, 0, stream>>>(distances, weights, turned, u, state, rows, columns, epsilon);
  for (Progress seen = {0, 1}; seen.unfinished;) {
    rescale<<<ceil_div(columns, WARPS), THREADS, 0, stream>>>(turned, u, column_mass, v, nullptr, columns, rows);
    rescale<<<ceil_div(rows, WARPS), THREADS, 0, stream>>>(weights, v, row_mass, u, gaps, rows, columns);
    judge<<<1, THREADS, 0, stream>>>(gaps, state, rows, tolerance);
    TRY(cudaMemcpyAsync(&seen, state, sizeof(seen), cudaMemcpyDeviceToHost, stream));
    TRY(cudaStreamSynchronize(stream));
  }
  scale<<<blocks, THREADS, 0, stream>>>(weights, u, v, plan, rows, columns);
  return cudaGetLastError();
}
