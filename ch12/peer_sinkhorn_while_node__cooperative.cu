// One kernel does all iterations: its blocks are on the GPU together and wait for each other between the scalings.
#include "kernel.cuh"
#include <cooperative_groups.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int MOST = 1000;  // iterations, should the masses never fit

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// The same in every block that has the same values, since it adds in the same order.
__device__ float block_sum(float value) {
  __shared__ float warps[WARPS];
  value = warp_sum(value);
  __syncthreads();  // the last sum may still be read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += warps[warp];
  return total;
}

// A warp a row: the scale that gives it the mass it should have and, if asked for, by how much its old one missed that.
__device__ void rescale(const float* weights, const float* other, const float* mass, float* own, float* gaps, int rows,
                        int columns) {
  for (int row = blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += gridDim.x * WARPS) {
    float sum = 0.0f;
#pragma unroll 8
    for (int column = threadIdx.x % 32; column < columns; column += 32) {
      sum += weights[row * columns + column] * other[column];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 != 0) continue;
    if (gaps) gaps[row] = fabsf(own[row] * sum - mass[row]);
    own[row] = mass[row] / sum;
  }
}

__global__ void balance_all(const float* distances, const float* row_mass, const float* column_mass, float* plan,
                            float* weights, float* turned, float* u, float* v, float* gaps, int rows, int columns,
                            float epsilon, float tolerance) {
  const auto grid = cooperative_groups::this_grid();
  const int first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS, n = rows * columns;
  for (int i = first; i < n; i += stride) {
    const int row = i / columns, column = i % columns;
    const float weight = expf(-distances[i] / epsilon);
    weights[i] = weight;
    turned[column * rows + row] = weight;
    if (column == 0) u[row] = 1.0f;
  }
  grid.sync();
  for (int done = 0; done < MOST; ++done) {
    rescale(turned, u, column_mass, v, nullptr, columns, rows);
    grid.sync();
    rescale(weights, v, row_mass, u, gaps, rows, columns);
    grid.sync();
    float gap = 0.0f;
    for (int row = threadIdx.x; row < rows; row += THREADS) gap += gaps[row];
    if (!(block_sum(gap) > tolerance)) break;  // in all blocks at once
  }
  for (int i = first; i < n; i += stride) plan[i] = u[i / columns] * weights[i] * v[i % columns];
}

// weights and turned are as long as distances, u and gaps have a number a row, v one a column.
extern "C" int balance(const float* distances, const float* row_mass, const float* column_mass, float* plan,
                       float* weights, float* turned, float* u, float* v, float* gaps, int rows, int columns,
                       float epsilon, float tolerance, cudaStream_t stream) {
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t wanted = ceil_div(rows > columns ? rows : columns, WARPS);
  const dim3 blocks(wanted < multiprocessors ? wanted : multiprocessors);  // one on each multiprocessor surely fits
  void* arguments[] = {&distances, &row_mass, &column_mass, &plan,    &weights, &turned,   &u,
                       &v,         &gaps,     &rows,        &columns, &epsilon, &tolerance};
  return cudaLaunchCooperativeKernel(balance_all, blocks, dim3(THREADS), arguments, 0, stream);
}
