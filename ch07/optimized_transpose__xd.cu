// Transpose in 16-byte pieces: each thread turns a 4 x 4 block in its registers, and an XOR swizzle of the tile in
// shared memory spreads the pieces over all banks without padding.
#include "tma.cuh"

constexpr int SIDE = 16;        // a block of 16 x 16 threads
constexpr int TILE = 4 * SIDE;  // does a tile of 64 x 64: runs of 256 bytes on both sides

// Four neighbours of a row; those at `end` and beyond are zero. `aligned`: rows are whole pieces, so one access does.
template <bool aligned>
__device__ float4 load(const float* row, int64_t at, int64_t end) {
  if constexpr (aligned) return at < end ? *reinterpret_cast<const float4*>(row + at) : float4{};
  float4 piece{};
  if (at + 0 < end) piece.x = row[at + 0];
  if (at + 1 < end) piece.y = row[at + 1];
  if (at + 2 < end) piece.z = row[at + 2];
  if (at + 3 < end) piece.w = row[at + 3];
  return piece;
}

template <bool aligned>
__device__ void store(float* row, int64_t at, int64_t end, float4 piece) {
  if constexpr (aligned) {
    if (at < end) *reinterpret_cast<float4*>(row + at) = piece;
  } else {
    if (at + 0 < end) row[at + 0] = piece.x;
    if (at + 1 < end) row[at + 1] = piece.y;
    if (at + 2 < end) row[at + 2] = piece.z;
    if (at + 3 < end) row[at + 3] = piece.w;
  }
}

template <bool aligned>
__global__ void __launch_bounds__(SIDE* SIDE)
    transpose(const float* __restrict__ a, float* __restrict__ out, int64_t rows, int64_t columns) {
  __shared__ float4 tile[TILE][SIDE];  // rows of the result, in pieces
  const int64_t left = int64_t(blockIdx.x) * TILE, top = int64_t(blockIdx.y) * TILE;
  const int x = threadIdx.x, y = threadIdx.y;

  float4 in[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = top + 4 * y + i;
    in[i] = load<aligned>(a + row * columns, left + 4 * x, row < rows ? columns : 0);
  }

  // Eight lanes share a cycle of 16-byte accesses. Here they write piece y of eight rows, 4 apart: unswizzled, the same
  // four banks. Piece p of row r therefore stands at p ^ (r / 4 % 8), which differs from lane to lane; below, where
  // they read eight pieces of one row, it only reorders them.
  const int place = y ^ (x % 8);
  tile[4 * x + 0][place] = {in[0].x, in[1].x, in[2].x, in[3].x};
  tile[4 * x + 1][place] = {in[0].y, in[1].y, in[2].y, in[3].y};
  tile[4 * x + 2][place] = {in[0].z, in[1].z, in[2].z, in[3].z};
  tile[4 * x + 3][place] = {in[0].w, in[1].w, in[2].w, in[3].w};
  __syncthreads();

#pragma unroll
  for (int r = y; r < TILE; r += SIDE) {
    store<aligned>(out + (left + r) * rows, top + 4 * x, left + r < columns ? rows : 0, tile[r][x ^ (r / 4 % 8)]);
  }
}

constexpr int STAGES = 3;  // tiles of a block on their way, 48 KiB

struct alignas(128) Box {
  float value[TILE][TILE];
};

// The same by blocks that stay: the copy engine brings the next tiles while one is turned.
__global__ void __launch_bounds__(SIDE* SIDE)
    transpose_ring(const __grid_constant__ CUtensorMap a, float* __restrict__ out, int64_t rows, int64_t columns,
                   int tiles_down, int tiles) {
  extern __shared__ Box box[];
  __shared__ Barrier full[STAGES];
  __shared__ float4 tile[TILE][SIDE];  // rows of the result, in pieces
  const int x = threadIdx.x, y = threadIdx.y;
  const bool leader = x == 0 && y == 0;
  const auto load = [&](int number, int stage) {
    arrive_and_expect(&full[stage], sizeof(Box));  // zeros beyond the matrix count as bytes, too
    load_box(box[stage].value, &a, number / tiles_down * TILE, number % tiles_down * TILE, &full[stage]);
  };
  if (leader) {
    for (int stage = 0; stage < STAGES; ++stage) init(&full[stage], 1);
    publish_barriers();
    for (int stage = 0; stage < STAGES; ++stage) {
      const int number = blockIdx.x + stage * gridDim.x;
      if (number < tiles) load(number, stage);
    }
  }
  __syncthreads();

  for (int number = blockIdx.x, turn = 0; number < tiles; number += gridDim.x, ++turn) {
    const int stage = turn % STAGES;
    const int64_t left = int64_t(number / tiles_down) * TILE, top = int64_t(number % tiles_down) * TILE;
    wait(&full[stage], turn / STAGES % 2);
    float4 in[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) in[i] = *reinterpret_cast<const float4*>(&box[stage].value[4 * y + i][4 * x]);
    publish_tile();   // these reads come before what TMA writes next
    __syncthreads();  // all have read the box, and stored the last tile
    const int next = number + STAGES * gridDim.x;
    if (leader && next < tiles) load(next, stage);
    const int place = y ^ (x % 8);
    tile[4 * x + 0][place] = {in[0].x, in[1].x, in[2].x, in[3].x};
    tile[4 * x + 1][place] = {in[0].y, in[1].y, in[2].y, in[3].y};
    tile[4 * x + 2][place] = {in[0].z, in[1].z, in[2].z, in[3].z};
    tile[4 * x + 3][place] = {in[0].w, in[1].w, in[2].w, in[3].w};
    __syncthreads();
#pragma unroll
    for (int r = y; r < TILE; r += SIDE) {
      store<true>(out + (left + r) * rows, top + 4 * x, left + r < columns ? rows : 0, tile[r][x ^ (r / 4 % 8)]);
    }
  }
}

extern "C" int transpose_swizzled(const float* a, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  const int64_t down = ceil_div(rows, TILE), across = ceil_div(columns, TILE), tiles = down * across;
  const dim3 block(SIDE, SIDE);
  if (tiles > int64_t(1) << 30) return cudaErrorInvalidValue;  // they are numbered by 32 bits
  if (rows % 4 == 0 && columns % 4 == 0) {
    constexpr int bytes = STAGES * sizeof(Box);
    CUtensorMap map;
    TRY(describe(&map, a, {columns, rows}, {TILE, TILE}, CU_TENSOR_MAP_SWIZZLE_NONE,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B));
    TRY(cudaFuncSetAttribute(transpose_ring, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    int resident;
    TRY(count_resident(&resident, transpose_ring, SIDE * SIDE, bytes));
    const int64_t blocks = tiles < resident ? tiles : resident;
    transpose_ring<<<blocks, block, bytes, stream>>>(map, out, rows, columns, int(down), int(tiles));
  } else {  // rows that start between 16-byte boundaries are copied float by float
    transpose<false><<<dim3(across, down), block, 0, stream>>>(a, out, rows, columns);
  }
  return cudaGetLastError();
}
