// Adds what came for each id, times -rate, to its row. The row is asked into the L2 cache first, so that sums find it.
// targets: sm_90a, sm_100a, sm_103a, sm_120a, sm_121a (bulk prefetches and sums of four numbers exist from sm_90)
#include "kernel.cuh"

constexpr int WARPS = 8;    // of a block
constexpr int ENTRIES = 4;  // of a warp

// A warp asks for the rows of its entries, reads what came for them, and adds it.
template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
    add(float* table, const int64_t* ids, const float* upstream, int64_t count, int64_t width, float rate) {
  constexpr int EACH = sizeof(T) / sizeof(float);
  const int64_t first = (int64_t(blockIdx.x) * WARPS + threadIdx.x / 32) * ENTRIES;
  const int lane = threadIdx.x % 32;
  const int64_t mine = first + lane;
  int64_t row = 0;
  if (lane < ENTRIES && mine < count) {
    row = ids[mine];
    if constexpr (EACH == 4) {
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(table + row * width),
                   "r"(uint32_t(width * sizeof(float)))
                   : "memory");
    }
  }
  int64_t rows[ENTRIES];
#pragma unroll
  for (int i = 0; i < ENTRIES; ++i) rows[i] = __shfl_sync(~0u, row, i);
  for (int64_t column = lane * EACH; column < width; column += 32 * EACH) {
    T came[ENTRIES] = {};
#pragma unroll
    for (int i = 0; i < ENTRIES; ++i) {
      if (first + i < count) came[i] = __ldcs(reinterpret_cast<const T*>(upstream + (first + i) * width + column));
    }
#pragma unroll
    for (int i = 0; i < ENTRIES; ++i) {
      if (first + i >= count) continue;
      T* place = reinterpret_cast<T*>(table + rows[i] * width + column);
      if constexpr (EACH == 4) {
        atomicAdd(place, T{-rate * came[i].x, -rate * came[i].y, -rate * came[i].z, -rate * came[i].w});
      } else {
        atomicAdd(place, -rate * came[i]);
      }
    }
  }
}

extern "C" int add_rows(float* table, const int64_t* ids, const float* upstream, int64_t count, int64_t width,
                        float rate, cudaStream_t stream) {
  (width % 4 ? add<float> : add<float4>)<<<ceil_div(count, WARPS * ENTRIES), WARPS * 32, 0, stream>>>(table, ids, upstream, count, width, rate);
  return cudaGetLastError();
}
