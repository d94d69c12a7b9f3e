// Dequantize with half the warps, each with eight loads of 128 bytes begun before the first of them is used.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int LOADS = 8;  // begun before the first is used
constexpr int WIDTH = 4;  // codes to a load

template <int width>
struct alignas(width) Codes {
  int8_t at[width];
};

template <int width>
struct alignas(2 * width) Values {
  __nv_bfloat16 at[width];
};

template <int width>
__device__ Values<width> dequantized(Codes<width> codes, float scale) {
  Values<width> values;
#pragma unroll
  for (int i = 0; i < width; ++i) values.at[i] = __float2bfloat16(scale * codes.at[i]);
  return values;
}

// Written once and not read here: the line may leave the L2 cache first.
template <int width>
__device__ void store(Values<width>* to, Values<width> values) {
  if constexpr (width == 1) *to = values;
  else if constexpr (width == 4) __stcs(reinterpret_cast<uint2*>(to), reinterpret_cast<const uint2&>(values));
  else __stcs(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4&>(values));
}

// A block takes LOADS x THREADS pieces of a row, which end together or not at all. `columns` is a multiple of `width`.
template <int width>
__global__ void __launch_bounds__(THREADS)
    dequantize(const int8_t* __restrict__ codes, const float* __restrict__ scales, __nv_bfloat16* __restrict__ out,
               int64_t columns) {
  const int64_t row = blockIdx.y, pieces = columns / width, first = int64_t(blockIdx.x) * LOADS * THREADS;
  const float scale = scales[row];
  const auto from = reinterpret_cast<const Codes<width>*>(codes + row * columns) + first + threadIdx.x;
  const auto to = reinterpret_cast<Values<width>*>(out + row * columns) + first + threadIdx.x;
  if (first + LOADS * THREADS <= pieces) {
    Codes<width> piece[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) piece[k] = from[k * THREADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) store(to + k * THREADS, dequantized(piece[k], scale));
  } else {  // the end of a row
#pragma unroll 1
    for (int64_t i = 0; first + i + threadIdx.x < pieces; i += THREADS) to[i] = dequantized(from[i], scale);
  }
}

// Half the warps that the GPU could hold: each block reserves so much shared memory, unused, that no more fit.
template <int width>
cudaError_t launch(const int8_t* codes, const float* scales, __nv_bfloat16* out, int64_t rows, int64_t columns,
                   cudaStream_t stream) {
  int threads = 0;
  size_t reserved = 0;
  TRY(query_device(&threads, cudaDevAttrMaxThreadsPerMultiProcessor));
  TRY(cudaOccupancyAvailableDynamicSMemPerBlock(&reserved, dequantize<width>, threads / 2 / THREADS, THREADS));
  TRY(cudaFuncSetAttribute(dequantize<width>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(reserved)));
  const dim3 grid(ceil_div(columns / width, LOADS * THREADS), rows);
  dequantize<width><<<grid, THREADS, reserved, stream>>>(codes, scales, out, columns);
  return cudaGetLastError();
}

extern "C" int dequantize_rows(const int8_t* codes, const float* scales, __nv_bfloat16* out, int64_t rows,
                               int64_t columns, cudaStream_t stream) {
  // rows that start between words are read code by code
  return columns % WIDTH == 0 ? launch<WIDTH>(codes, scales, out, rows, columns, stream)
                              : launch<1>(codes, scales, out, rows, columns, stream);
}
