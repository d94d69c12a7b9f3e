// Smooth signals twice, each through a workspace from a pool: allocating and freeing are entries of the stream.
#include "kernel.cuh"

constexpr int THREADS = 256;

// The mean of each element and its two neighbours; the first and the last are neighbours, too.
__global__ void __launch_bounds__(THREADS) smooth(const float* __restrict__ from, float* __restrict__ to, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) to[i] = (from[i > 0 ? i - 1 : n - 1] + from[i] + from[i + 1 < n ? i + 1 : 0]) * (1.0f / 3.0f);
}

static cudaError_t smooth_twice(const float* signal, float* workspace, float* out, int64_t n, cudaStream_t stream) {
  smooth<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(signal, workspace, n);
  smooth<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(workspace, out, n);
  return cudaGetLastError();
}

// A pool of its own, which leaves the device's default one as it is. It keeps what is freed, however much.
extern "C" int create_pool(int64_t* pool, cudaStream_t stream) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  TRY(cudaGetDevice(&properties.location.id));
  cudaMemPool_t created = nullptr;
  TRY(cudaMemPoolCreate(&created, &properties));
  uint64_t threshold = UINT64_MAX;  // 0 by default: each synchronisation would give all memory back to the driver
  *pool = reinterpret_cast<int64_t>(created);
  return cudaMemPoolSetAttribute(created, cudaMemPoolAttrReleaseThreshold, &threshold);
}

extern "C" int destroy_pool(int64_t pool, cudaStream_t stream) {
  return cudaMemPoolDestroy(reinterpret_cast<cudaMemPool_t>(pool));
}

extern "C" int smooth_all(const float* signals, float* out, int64_t count, int64_t n, int64_t pool,
                          cudaStream_t stream) {
  cudaError_t status = cudaSuccess;
  for (int64_t i = 0; i < count && !status; ++i) {
    float* workspace = nullptr;
    status = cudaMallocFromPoolAsync(&workspace, n * sizeof(float), reinterpret_cast<cudaMemPool_t>(pool), stream);
    if (status) break;
    status = smooth_twice(signals + i * n, workspace, out + i * n, n, stream);
    const cudaError_t freed = cudaFreeAsync(workspace, stream);  // for whatever comes later in this stream
    if (!status) status = freed;
  }
  return status;
}
