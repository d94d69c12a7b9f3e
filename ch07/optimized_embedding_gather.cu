// Look rows up in a table, a warp to several rows: it reads their ids in one load and keeps four rows on their way.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int ROWS = 4;  // that a lane loads from before it stores

// Neighbours that one instruction moves: eight where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(2 * width) Piece {
  __nv_bfloat16 value[width];
};

// `lanes` of a warp share a row: all of them, but for rows that are shorter than 32 pieces. Of the rows of a warp, one
// after the other, each group of lanes takes every GROUPS-th, so that the warp stores neighbouring rows at a time.
template <int width, int lanes>
__global__ void __launch_bounds__(THREADS)
    gather(const __nv_bfloat16* __restrict__ table, const int64_t* __restrict__ ids, __nv_bfloat16* __restrict__ out,
           int64_t count, int64_t pieces) {
  constexpr int GROUPS = 32 / lanes, ROWS_OF_WARP = GROUPS * ROWS;
  static_assert(ROWS_OF_WARP <= 32, "a lane loads one id");
  const int lane = threadIdx.x % 32, group = lane / lanes;
  const int64_t first = (int64_t(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32) * ROWS_OF_WARP;
  const int rows = int(min(int64_t(ROWS_OF_WARP), count - first));  // the last warps have fewer, or none
  const int64_t id = lane < rows ? ids[first + lane] : 0;

  const Piece<width>* from[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    from[r] = reinterpret_cast<const Piece<width>*>(table) + __shfl_sync(~0u, id, r * GROUPS + group) * pieces;
  }
  auto* to = reinterpret_cast<Piece<width>*>(out) + (first + group) * pieces;
#pragma unroll 1  // more loads in flight would take registers from more warps
  for (int64_t at = lane % lanes; at < pieces; at += lanes) {
    Piece<width> piece[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) piece[r] = from[r][at];  // past the last id it is row 0, which is not stored
    if (rows == ROWS_OF_WARP) {  // with a condition at each store, ptxas stores before it has loaded all
#pragma unroll
      for (int r = 0; r < ROWS; ++r) to[r * GROUPS * pieces + at] = piece[r];
    } else {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        if (r * GROUPS + group < rows) to[r * GROUPS * pieces + at] = piece[r];
      }
    }
  }
}

template <int width, int lanes>
void launch(const __nv_bfloat16* table, const int64_t* ids, __nv_bfloat16* out, int64_t count, int64_t pieces,
            cudaStream_t stream) {
  const int64_t blocks = ceil_div(count, THREADS / lanes * ROWS);
  gather<width, lanes><<<blocks, THREADS, 0, stream>>>(table, ids, out, count, pieces);
}

extern "C" int gather_rows(const __nv_bfloat16* table, const int64_t* ids, __nv_bfloat16* out, int64_t count,
                           int64_t columns, cudaStream_t stream) {
  if (columns % 8 != 0) {
    launch<1, 32>(table, ids, out, count, columns, stream);
  } else if (columns <= 64) {
    launch<8, 8>(table, ids, out, count, columns / 8, stream);
  } else if (columns <= 128) {
    launch<8, 16>(table, ids, out, count, columns / 8, stream);
  } else {
    launch<8, 32>(table, ids, out, count, columns / 8, stream);
  }
  return cudaGetLastError();
}
