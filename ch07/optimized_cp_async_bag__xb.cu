// Sums the rows of a bag from a ring in shared memory, which cp.async fills eight rows ahead; ids come 32 at a time.
#include "ampere.cuh"

constexpr int LANES = 32;  // a block is one warp: bags are few, and none waits for another
constexpr int STAGES = 24;  // rows on their way: 4 KiB a warp, 64 KiB with 16 warps on a multiprocessor

// Neighbours that one access moves: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

template <int piece>
__global__ void __launch_bounds__(LANES)
    sum_bag(const float* __restrict__ table, const int64_t* __restrict__ ids, float* __restrict__ out, int most,
            int64_t width) {
  __shared__ Piece<piece> ring[STAGES][LANES];  // each lane reads only what it has copied: no barrier is needed
  const int lane = threadIdx.x;
  const int64_t column = (int64_t(blockIdx.y) * LANES + lane) * piece;
  ids += int64_t(blockIdx.x) * most;
  const auto id_at = [&](int i) { return i < most ? ids[i] : 0; };

  int end = most;                         // of the bag; less, once its padding has been met
  int64_t mine = 0, later = id_at(lane);  // the ids of these 32 rows, a lane's own, and of the next 32
  const auto fetch = [&](int i) {         // all lanes together
    if (i < end) {
      if (i % LANES == 0) mine = later, later = id_at(i + LANES + lane);
      const int64_t id = __shfl_sync(~0u, mine, i % LANES);
      if (id == 0) {
        end = i;
      } else if (column < width) {
        copy_async<4 * piece>(&ring[i % STAGES][lane], table + id * width + column);
      }
    }
    commit_copies();  // an empty group at the end, so that groups can be counted
  };

  for (int i = 0; i < STAGES; ++i) fetch(i);
  Piece<piece> sum{};
  for (int i = 0; i < end; ++i) {
    wait_for_copies<STAGES - 1>();  // row i is here
    const Piece<piece> row = ring[i % STAGES][lane];
#pragma unroll
    for (int c = 0; c < piece; ++c) sum.value[c] += row.value[c];
    fetch(i + STAGES);  // into the place of the row that was just added
  }
  if (column < width) *reinterpret_cast<Piece<piece>*>(out + blockIdx.x * width + column) = sum;
}

extern "C" int bag_sum(const float* table, const int64_t* ids, float* out, int64_t bags, int64_t most, int64_t width,
                       cudaStream_t stream) {
  const int piece = width % 4 ? 1 : 4;
  const auto kernel = piece == 4 ? sum_bag<4> : sum_bag<1>;
  kernel<<<dim3(bags, ceil_div(width, LANES * piece)), LANES, 0, stream>>>(table, ids, out, most, width);
  return cudaGetLastError();
}
