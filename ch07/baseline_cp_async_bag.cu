// Sums the rows of a bag in order: load an id, load its row, add. Each row waits for its id, and each id for its turn.
#include "kernel.cuh"

constexpr int LANES = 32;  // a block is one warp: bags are few, and none waits for another

// Neighbours that one access moves: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

template <int piece>
__global__ void __launch_bounds__(LANES)
    sum_bag(const float* __restrict__ table, const int64_t* __restrict__ ids, float* __restrict__ out, int64_t most,
            int64_t width) {
  const int64_t column = (int64_t(blockIdx.y) * LANES + threadIdx.x) * piece;
  if (column >= width) return;
  ids += blockIdx.x * most;
  Piece<piece> sum{};
  for (int64_t i = 0; i < most; ++i) {
    const int64_t id = ids[i];
    if (id == 0) break;  // padding: the bag has ended
    const auto row = *reinterpret_cast<const Piece<piece>*>(table + id * width + column);
#pragma unroll
    for (int c = 0; c < piece; ++c) sum.value[c] += row.value[c];
  }
  *reinterpret_cast<Piece<piece>*>(out + blockIdx.x * width + column) = sum;
}

extern "C" int bag_sum(const float* table, const int64_t* ids, float* out, int64_t bags, int64_t most, int64_t width,
                       cudaStream_t stream) {
  const int piece = width % 4 ? 1 : 4;
  const auto kernel = piece == 4 ? sum_bag<4> : sum_bag<1>;
  kernel<<<dim3(bags, ceil_div(width, LANES * piece)), LANES, 0, stream>>>(table, ids, out, most, width);
  return cudaGetLastError();
}
