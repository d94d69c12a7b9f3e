// What comes before and after one pass over all pairs of an attention gradient: sums of rows, and sums made whole.
// targets: sm_90a (what it surrounds needs wgmma)
#include "kernel.cuh"

constexpr int ROWS = 64, THREADS = 256;  // of a tile of queries; of a block

template <typename Element, int COUNT>
struct alignas(COUNT * sizeof(Element) < 16 ? COUNT * sizeof(Element) : 16) Vector {
  Element of[COUNT];
};

// A warp for each query, with those that fill a head's last tile up. A tile's notes say what its products begin at, in
// two rows of 64: with keys, -log / unit, so that weights add up to 1, and with values, -(output times its gradient).
template <typename Element>
__global__ void __launch_bounds__(THREADS) sum_rows(const Element* __restrict__ out, const Element* __restrict__ grad,
                                                    const float* __restrict__ logs, float* __restrict__ notes,
                                                    float* __restrict__ total, int tokens, int width, float unit) {
  const int lane = threadIdx.x % 32, row = (blockIdx.x * THREADS + threadIdx.x) / 32 % ROWS;
  const int64_t tile = blockIdx.y * (gridDim.x * THREADS / 32 / ROWS) + blockIdx.x * THREADS / 32 / ROWS;
  const int64_t token = blockIdx.x * THREADS / 32 / ROWS * ROWS + row, query = blockIdx.y * int64_t(tokens) + token;
  float sum = 0.0f;
  for (int column = lane * 2; column < width; column += 64) {
    if (token < tokens) {
      const auto given = *reinterpret_cast<const Vector<Element, 2>*>(out + query * width + column);
      const auto above = *reinterpret_cast<const Vector<Element, 2>*>(grad + query * width + column);
      sum += float(given.of[0]) * float(above.of[0]) + float(given.of[1]) * float(above.of[1]);
    }
    *reinterpret_cast<float2*>(total + (tile * ROWS + row) * width + column) = make_float2(0.0f, 0.0f);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) {
    notes[tile * (2 * ROWS) + row] = token < tokens ? -logs[query] / unit : -INFINITY;  // no weight beyond the head
    notes[tile * (2 * ROWS) + ROWS + row] = -sum;
  }
}

// A block for each tile of queries. Sums lie as threads of a warpgroup hold a product 32 columns wide: for each of these
// (stride 2048) and half of 16 rows (1024) two times two columns by 8 (512, 256), then warps (64), rows (8) and columns.
template <typename Element>
__global__ void __launch_bounds__(THREADS) round_off(const float* __restrict__ total, Element* __restrict__ to_query,
                                                     int tokens, int width, float unit) {
  total += (blockIdx.y * gridDim.x + blockIdx.x) * int64_t(ROWS) * width;
  for (int i = threadIdx.x; i < 4 * width; i += THREADS) {
    const int row = i % 8, warp = i / 8 % 4, column = i / 32 % 2, half = i / 64 % 2, part = i / 128;
    const int64_t token = blockIdx.x * ROWS + warp * 16 + half * 8 + row;
    if (token >= tokens) continue;
    const float* from = total + part * 2048 + half * 1024 + column * 512 + warp * 64 + row * 8;
    Element* to = to_query + (blockIdx.y * int64_t(tokens) + token) * width + part * 32 + column * 16;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const Vector<float, 8> sums = reinterpret_cast<const Vector<float, 8>*>(from)[side * 32];
      Vector<Element, 8> rounded;
#pragma unroll
      for (int k = 0; k < 8; ++k) rounded.of[k] = Element(sums.of[k] * unit);
      reinterpret_cast<Vector<Element, 8>*>(to)[side] = rounded;
    }
  }
}

template <typename Element>
int begin(const Element* out, const Element* grad, const float* logs, float* notes, float* total, int heads, int tokens,
          int width, float unit, cudaStream_t stream) {
  const dim3 grid(unsigned(ceil_div(tokens, ROWS)) * ROWS * 32 / THREADS, heads);
  sum_rows<<<grid, THREADS, 0, stream>>>(out, grad, logs, notes, total, tokens, width, unit);
  return cudaGetLastError();
}

template <typename Element>
int finish(const float* total, Element* to_query, int heads, int tokens, int width, float unit, cudaStream_t stream) {
  if (width % 32) return cudaErrorInvalidValue;
  const dim3 grid(unsigned(ceil_div(tokens, ROWS)), heads);
  round_off<<<grid, THREADS, 0, stream>>>(total, to_query, tokens, width, unit);
  return cudaGetLastError();
}

// out, grad and to_query [heads, tokens, width], logs [heads, tokens]; notes [heads, tiles, 2, 64], total [heads, tiles,
// 64, width] for tiles of 64 tokens, rounded up.
extern "C" int begin_bfloat16(const __nv_bfloat16* out, const __nv_bfloat16* grad, const float* logs, float* notes,
                              float* total, int heads, int tokens, int width, float unit, cudaStream_t stream) {
  return begin(out, grad, logs, notes, total, heads, tokens, width, unit, stream);
}

extern "C" int begin_float16(const __half* out, const __half* grad, const float* logs, float* notes, float* total,
                             int heads, int tokens, int width, float unit, cudaStream_t stream) {
  return begin(out, grad, logs, notes, total, heads, tokens, width, unit, stream);
}

extern "C" int finish_bfloat16(const float* total, __nv_bfloat16* to_query, int heads, int tokens, int width, float unit,
                               cudaStream_t stream) {
  return finish(total, to_query, heads, tokens, width, unit, stream);
}

extern "C" int finish_float16(const float* total, __half* to_query, int heads, int tokens, int width, float unit,
                              cudaStream_t stream) {
  return finish(total, to_query, heads, tokens, width, unit, stream);
}
