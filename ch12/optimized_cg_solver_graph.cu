// Conjugate gradients in one launch: a cluster of eight blocks keeps all vectors on chip for all iterations.
// targets: sm_90a, sm_100a, sm_103a, sm_120a, sm_121a (clusters exist from sm_90 on)
#include "cluster.cuh"

constexpr int CLUSTER = 8;  // blocks: as many as every GPU with clusters allows
constexpr int THREADS = 512, WARPS = THREADS / 32;

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// What the blocks of the cluster have in each other's memory: sums of each warp, of the two kinds.
struct Shared {
  float curvature[CLUSTER * WARPS], squared[CLUSTER * WARPS];
};

// The same place in block `rank` of the cluster.
__device__ float* in_block(float* place, int rank) {
  return static_cast<float*>(__cluster_map_shared_rank(place, rank));
}

// The sum over a warp goes to all blocks; behind the next barrier of the cluster total() adds these up.
__device__ void tell_all(float value, float* sums, int rank) {
  value = warp_sum(value);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane < CLUSTER) *in_block(sums + rank * WARPS + warp, lane) = value;
}

// In one order in every warp, so that all blocks go on with the same number.
__device__ float total(const float* sums) {
  float value = 0.0f;
#pragma unroll
  for (int i = 0; i < CLUSTER * WARPS; i += 32) value += sums[i + threadIdx.x % 32];
  return warp_sum(value);
}

// Where nothing is left to divide by, the residual has vanished: the solution stays as it is.
__device__ float ratio(float a, float b) { return b > 0.0f ? a / b : 0.0f; }

// A block has `most` rows, or what is left of them, each thread at most EACH of their unknowns. r and p lie in shared
// memory with a row before and one behind; those of r are written by the blocks that own them.
template <int EACH>
__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS)
    solve_on_chip(const float* b, float* x, int rows, int columns, int most, float tau, int iterations) {
  extern __shared__ float vectors[];
  __shared__ Shared shared;
  const int rank = cluster_rank(), used = ceil_div(rows, most), first = rank * most;
  const int own = max(min(rows - first, most), 0), n = own * columns, padded = n > 0 ? n + 2 * columns : 0;
  const int before = (rank + used - 1) % used, behind = (rank + 1) % used;  // the grid closes on itself
  const int rows_before = min(rows - before * most, most);
  float *r = vectors, *p = vectors + (most + 2) * columns;
  float solution[EACH] = {}, across[EACH];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < padded; i += THREADS) {
    const int row = (first - 1 + i / columns + rows) % rows;
    r[i] = b[row * columns + i % columns];
    p[i] = 0.0f;
    if (i >= columns && i < columns + n) sum += r[i] * r[i];
  }
  sync_cluster();  // before any block writes into another's memory, all have begun
  tell_all(sum, shared.squared, rank);
  sync_cluster();
  float squared = total(shared.squared), beta = 0.0f;
  for (int k = 0; k < iterations; ++k) {
    for (int i = threadIdx.x; i < padded; i += THREADS) p[i] = fmaf(beta, p[i], r[i]);
    __syncthreads();
    float product = 0.0f;
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      const int i = threadIdx.x + j * THREADS, at = i + columns, column = i % columns;
      if (i >= n) break;
      const float left = p[column > 0 ? at - 1 : at + columns - 1];
      const float right = p[column < columns - 1 ? at + 1 : at - columns + 1];
      across[j] = p[at] + tau * (4.0f * p[at] - left - right - p[at - columns] - p[at + columns]);
      product += p[at] * across[j];
    }
    tell_all(product, shared.curvature, rank);
    sync_cluster();
    const float alpha = ratio(squared, total(shared.curvature));
    float left = 0.0f;
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      const int i = threadIdx.x + j * THREADS, at = i + columns;
      if (i >= n) break;
      solution[j] += alpha * p[at];
      const float residual = r[at] - alpha * across[j];
      r[at] = residual;
      if (i < columns) in_block(r, before)[(rows_before + 1) * columns + i] = residual;
      if (i >= n - columns) in_block(r, behind)[i - (n - columns)] = residual;
      left += residual * residual;
    }
    tell_all(left, shared.squared, rank);
    sync_cluster();
    const float now = total(shared.squared);
    beta = ratio(now, squared);
    squared = now;
  }
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const int i = threadIdx.x + j * THREADS;
    if (i < n) x[first * columns + i] = solution[j];
  }
}

extern "C" int solve(const float* b, float* x, int rows, int columns, float tau, int iterations, cudaStream_t stream) {
  const int most = ceil_div(rows, CLUSTER), each = ceil_div(most * columns, THREADS);
  const int bytes = 2 * (most + 2) * columns * sizeof(float);
  if (each > 32) return cudaErrorInvalidValue;  // registers hold no more
  const auto kernel = each <= 4 ? solve_on_chip<4> : solve_on_chip<32>;
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<CLUSTER, THREADS, bytes, stream>>>(b, x, rows, columns, most, tau, iterations);
  return cudaGetLastError();
}
