// One warp a block: its first thread has TMA bring pieces of rows into a ring in shared memory, and add them from there.
#include "tma.cuh"

constexpr int PIECE = 2048;  // floats, 8 KiB
constexpr int STAGES = 8;
constexpr int AHEAD = 4;  // loads on their way; the other stages are being added
constexpr int BYTES = STAGES * PIECE * 4;

// The block takes every gridDim.x-th piece, so that all blocks together go through the rows in order.
__global__ void __launch_bounds__(32)
    add_pieces(const float* __restrict__ rows, const int64_t* __restrict__ ids, float* __restrict__ out,
               int64_t width, uint32_t pieces, uint32_t total) {
  extern __shared__ __align__(128) float staged[];
  __shared__ Barrier landed[STAGES];
  __shared__ float* place[STAGES];    // where the piece in this stage belongs
  __shared__ uint32_t bytes[STAGES];  // and its length
  const uint32_t mine = total > blockIdx.x ? (total - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  const uint32_t lane = threadIdx.x;
  const auto piece_of = [&](uint32_t i) { return blockIdx.x + i * gridDim.x; };
  const auto id_of = [&](uint32_t i) { return i < mine ? ids[piece_of(i) / pieces] : 0; };
  if (lane == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(&landed[stage], 1);
    publish_barriers();
  }
  __syncwarp();

  int64_t id = 0, next = id_of(lane);  // of 32 pieces, a lane for each; the next 32 are asked for in time
  for (uint32_t i = 0; i < mine + AHEAD; ++i) {
    if (i % 32 == 0) {
      id = next;
      next = id_of(i + 32 + lane);
    }
    const int64_t token = __shfl_sync(~0u, id, i % 32);
    if (lane != 0) continue;  // the other lanes only know ids
    if (i < mine) {
      const int stage = i % STAGES;
      const int64_t row = piece_of(i) / pieces, column = int64_t(piece_of(i) % pieces) * PIECE;
      place[stage] = out + token * width + column;
      bytes[stage] = 4 * (width - column < PIECE ? width - column : PIECE);
      wait_for_stores<STAGES - AHEAD - 1>();  // the last addition from this stage has read it
      arrive_and_expect(&landed[stage], bytes[stage]);
      load_row(staged + stage * PIECE, rows + row * width + column, bytes[stage], &landed[stage]);
    }
    if (i >= AHEAD) {
      const int stage = (i - AHEAD) % STAGES;
      wait(&landed[stage], (i - AHEAD) / STAGES % 2);
      add_row(place[stage], staged + stage * PIECE, bytes[stage]);
      commit_stores();
    }
  }
  if (lane == 0) wait_for_stores<0>();  // shared memory must outlast them
}

extern "C" int add_rows(const float* rows, const int64_t* ids, float* out, int64_t n, int64_t width,
                        cudaStream_t stream) {
  if (width % 4) return cudaErrorInvalidValue;  // TMA copies multiples of 16 bytes
  const auto opt_in = cudaFuncAttributeMaxDynamicSharedMemorySize;
  TRY(cudaFuncSetAttribute(add_pieces, opt_in, BYTES));
  int blocks = 0;
  TRY(count_resident(&blocks, add_pieces, 32, BYTES));
  const int64_t pieces = ceil_div(width, PIECE);
  if (n * pieces > int64_t(1) << 30) return cudaErrorInvalidValue;  // they are numbered by 32 bits
  add_pieces<<<blocks, 32, BYTES, stream>>>(rows, ids, out, width, pieces, n * pieces);
  return cudaGetLastError();
}
