// Depthwise 5 x 5: one thread asks TMA for a tile and its border; what lies outside the image arrives as zeros. Blocks
// draw their tiles, so that all work in one place, and a border's second reader finds it in the L2 cache. Tiles of 64
// rows have half the border of those of 32, and a thread loads twelve rows for eight.
// On sm_120 eight bytes are spilled.
#include "tma.cuh"

constexpr int TILE_W = 128, TILE_H = 64;  // of the result, a block
constexpr int HALO = 2, TAPS = 2 * HALO + 1;
constexpr int SIDE = 4;  // columns of the box to the left and to the right of the tile, in whole pieces of 16 bytes
constexpr int BOX_W = TILE_W + 2 * SIDE, BOX_H = TILE_H + 2 * HALO;
constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int ROWS = TILE_H / WARPS;  // of a thread's results, four columns each

// Adds up what the box holds for rows `first`, `first` + 1, ... of the tile and columns 4 lane to 4 lane + 3.
__device__ void convolve(float (&sum)[ROWS][4], const float* box, const float (&weight)[TAPS * TAPS], int first,
                         int lane) {
#pragma unroll
  for (int y = 0; y < ROWS + TAPS - 1; ++y) {
    const float* row = box + (first + y) * BOX_W + SIDE + 4 * lane;
    const float2 left = *reinterpret_cast<const float2*>(row - HALO);
    const float4 own = *reinterpret_cast<const float4*>(row);
    const float2 right = *reinterpret_cast<const float2*>(row + 4);
    const float in[8] = {left.x, left.y, own.x, own.y, own.z, own.w, right.x, right.y};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (y < r || y >= r + TAPS) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int x = 0; x < TAPS; ++x) sum[r][c] += weight[(y - r) * TAPS + x] * in[c + x];
      }
    }
  }
}

// Stores the results within the image; its rows are whole pieces of four.
__device__ void store(const float (&sum)[ROWS][4], float* out, int row, int column, int height, int width) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (row + r < height && column < width) {
      *reinterpret_cast<float4*>(out + int64_t(row + r) * width + column) = {sum[r][0], sum[r][1], sum[r][2],
                                                                             sum[r][3]};
    }
  }
}

constexpr int STAGES = 2;  // boxes: one is worked on, the next is on its way

struct alignas(128) Box {
  float value[BOX_H * BOX_W];
};

// `drawn` counts the tiles that blocks have drawn beyond their first ones.
__global__ void __launch_bounds__(THREADS)
    depthwise_tiles(const __grid_constant__ CUtensorMap x, const float* __restrict__ weights, float* __restrict__ out,
                    int* drawn, int channels, int height, int width, int tiles) {
  extern __shared__ __align__(128) uint8_t memory[];
  auto* box = reinterpret_cast<Box*>(memory);
  __shared__ Barrier full[STAGES];
  __shared__ int tile_of[STAGES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int across = ceil_div(width, TILE_W), down = ceil_div(height, TILE_H);
  const auto load = [&](int tile, int stage) {  // or tells that there are no more
    tile_of[stage] = tile;                      // whoever waits for the barrier sees it
    if (tile >= tiles) return arrive(&full[stage]);
    const int left = tile % across * TILE_W, top = tile / across % down * TILE_H;
    arrive_and_expect(&full[stage], sizeof(box[0].value));  // zeros count as bytes, too
    // The box may begin outside. A column that is not a multiple of 16 bytes ends in an illegal instruction.
    load_box(box[stage].value, &x, {left - SIDE, top - HALO, tile / across / down}, &full[stage]);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(&full[stage], 1);
    publish_barriers();
    for (int stage = 0; stage < STAGES; ++stage) load(blockIdx.x + stage * gridDim.x, stage);
  }
  __syncthreads();

  for (int i = 0;; ++i) {
    wait(&full[i % STAGES], i / STAGES % 2);
    const int tile = tile_of[i % STAGES];
    if (tile >= tiles) break;  // and so is what was drawn after it: no box is on its way
    int next = 0;
    if (threadIdx.x == 0) next = STAGES * gridDim.x + atomicAdd(drawn, 1);  // is on its way meanwhile
    const int left = tile % across * TILE_W, top = tile / across % down * TILE_H, plane = tile / across / down;
    float weight[TAPS * TAPS], sum[ROWS][4] = {};
#pragma unroll
    for (int j = 0; j < TAPS * TAPS; ++j) weight[j] = weights[plane % channels * TAPS * TAPS + j];

    convolve(sum, box[i % STAGES].value, weight, warp * ROWS, lane);
    publish_tile();   // or TMA might write before these reads have ended: a barrier alone does not order the two
    __syncthreads();  // all have read the box, so it may be filled again
    if (threadIdx.x == 0) load(next, i % STAGES);
    store(sum, out + int64_t(plane) * height * width, top + warp * ROWS, left + 4 * lane, height, width);
  }
}

extern "C" int depthwise(const float* x, const float* weight, float* out, int* drawn, int64_t batch, int64_t channels,
                         int64_t height, int64_t width, cudaStream_t stream) {
  const int64_t planes = batch * channels, tiles = planes * ceil_div(height, TILE_H) * ceil_div(width, TILE_W);
  if (width % 4 || tiles > (1 << 30)) return cudaErrorInvalidValue;  // TMA wants rows of whole 16 bytes
  CUtensorMap map;
  TRY(describe(&map, x, {width, height, planes}, {BOX_W, BOX_H, 1}, CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B));
  constexpr int BYTES = STAGES * sizeof(Box);
  int blocks;
  TRY(cudaFuncSetAttribute(depthwise_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  TRY(count_resident(&blocks, depthwise_tiles, THREADS, BYTES));
  const int64_t grid = tiles < blocks ? tiles : blocks;
  TRY(cudaMemsetAsync(drawn, 0, sizeof(*drawn), stream));
  depthwise_tiles<<<grid, THREADS, BYTES, stream>>>(map, weight, out, drawn, channels, height, width, tiles);
  return cudaGetLastError();
}
