// Adds a row of a table to each row of a stream. The table's lines stay in a part of the L2 cache that is set aside.
#include "kernel.cuh"

#include <algorithm>

constexpr int THREADS = 256;
constexpr int ROWS = 4;  // of a thread, whose loads are on their way together

__device__ float add(float a, float b) { return a + b; }
__device__ float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Piece: float4 where rows begin at multiples of 16 bytes, else float. `width` counts pieces.
template <class Piece>
__global__ void __launch_bounds__(THREADS)
    add_rows(const Piece* __restrict__ x, const int64_t* __restrict__ ids, const Piece* __restrict__ table,
             Piece* __restrict__ out, int64_t n, int64_t width) {
  const int64_t first = int64_t(blockIdx.x) * blockDim.y * ROWS + threadIdx.y;
  int64_t id[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int64_t row = first + r * blockDim.y;
    id[r] = row < n ? ids[row] : 0;
  }
  for (int64_t column = threadIdx.x; column < width; column += blockDim.x) {
    Piece own[ROWS], found[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int64_t row = first + r * blockDim.y;
      if (row < n) own[r] = x[row * width + column], found[r] = table[id[r] * width + column];
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int64_t row = first + r * blockDim.y;
      if (row < n) out[row * width + column] = add(own[r], found[r]);
    }
  }
}

constexpr int LINE = 128;  // bytes

// Gives the lines of the table back to the cache at large, or a later step would still find them there.
__global__ void __launch_bounds__(THREADS) release(const float* table, int64_t bytes) {
  const int64_t at = (int64_t(blockIdx.x) * THREADS + threadIdx.x) * LINE;
  if (at < bytes) {
    asm volatile("prefetch.global.L2::evict_normal [%0];" ::"l"(reinterpret_cast<const char*>(table) + at) : "memory");
  }
}

template <class Piece>
int launch(const float* x, const int64_t* ids, const float* table, float* out, int64_t n, int64_t width, int64_t rows,
           cudaStream_t stream) {
  int lanes = 1;  // of a row
  while (lanes < 32 && lanes < width) lanes *= 2;
  int longest, aside;
  TRY(query_device(&longest, cudaDevAttrMaxAccessPolicyWindowSize));
  TRY(query_device(&aside, cudaDevAttrMaxPersistingL2CacheSize));

  const int64_t bytes = rows * width * sizeof(Piece);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeAccessPolicyWindow;
  cudaAccessPolicyWindow& window = attribute.val.accessPolicyWindow;
  window.base_ptr = const_cast<float*>(table);
  window.num_bytes = std::min(bytes, int64_t(longest));
  window.hitRatio = std::min(1.0f, float(aside) / float(window.num_bytes));  // of a larger table, as much as has room
  window.hitProp = cudaAccessPropertyPersisting;
  window.missProp = cudaAccessPropertyStreaming;

  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(lanes, THREADS / lanes);
  config.gridDim = dim3(ceil_div(n, int64_t(config.blockDim.y) * ROWS));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  TRY(cudaLaunchKernelEx(
      &config, add_rows<Piece>, reinterpret_cast<const Piece*>(x), ids, reinterpret_cast<const Piece*>(table),
      reinterpret_cast<Piece*>(out), n, width));
  release<<<ceil_div(bytes, THREADS * LINE), THREADS, 0, stream>>>(table, bytes);
  return cudaGetLastError();
}

extern "C" int set_aside(int64_t bytes, cudaStream_t stream) {
  int most;
  TRY(query_device(&most, cudaDevAttrMaxPersistingL2CacheSize));
  return cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, std::min(bytes, int64_t(most)));
}

extern "C" int add_looked_up(const float* x, const int64_t* ids, const float* table, float* out, int64_t n,
                             int64_t width, int64_t rows, cudaStream_t stream) {
  return width % 4 ? launch<float>(x, ids, table, out, n, width, rows, stream)
                   : launch<float4>(x, ids, table, out, n, width / 4, rows, stream);
}
