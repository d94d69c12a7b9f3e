// Zeros the table's gradient and adds each token's row to it with atomics of four floats.
#include "kernel.cuh"

constexpr int THREADS = 256;

// Neighbours that one access moves: four where rows begin at multiples of 16 bytes, else one.
template <int piece>
__global__ void __launch_bounds__(THREADS)
    add_rows(const float* __restrict__ grads, const int64_t* __restrict__ ids, float* __restrict__ out, int64_t width) {
  const float* from = grads + blockIdx.x * width;
  float* to = out + ids[blockIdx.x] * width;
  for (int64_t column = threadIdx.x * piece; column < width; column += THREADS * piece) {
    if constexpr (piece == 4) {
      const float4 value = *reinterpret_cast<const float4*>(from + column);
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + column), "f"(value.x),
                   "f"(value.y), "f"(value.z), "f"(value.w)
                   : "memory");
    } else {
      atomicAdd(to + column, from[column]);
    }
  }
}

extern "C" int scatter_add(const float* grads, const int64_t* ids, float* out, int64_t tokens, int64_t vocab,
                           int64_t width, cudaStream_t stream) {
  TRY(cudaMemsetAsync(out, 0, vocab * width * sizeof(float), stream));
  const auto kernel = width % 4 ? add_rows<1> : add_rows<4>;
  kernel<<<tokens, THREADS, 0, stream>>>(grads, ids, out, width);
  return cudaGetLastError();
}
