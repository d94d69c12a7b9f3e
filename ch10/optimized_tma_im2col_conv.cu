// TMA walks for blocks that stay: pairs share the filters, and a tile is stored while the next one's patches arrive.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "cluster.cuh"
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 256;                // pixels and results of a block at a time
constexpr int CONSUMERS = 2;                             // warpgroups, 64 pixels each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;                                // of 64 channels at one tap
constexpr int CLUSTER = 2;                               // blocks with neighbouring pixels: they share the filters
constexpr int PIECE = 8;                                 // elements of 16 bytes

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  bf16 out[CONSUMERS][2][64 * ROW];
  Barrier full[STAGES], empty[STAGES];
};

// 64 channels of 128 pixels, from where the filter's corner lies on the first; `right` and `down` choose the tap.
__device__ void load_patches(void* tile, const CUtensorMap* map, int channel, int column, int row, int image,
                             uint16_t right, uint16_t down, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(shared_address(tile)),
      "l"(map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(shared_address(barrier)), "h"(right), "h"(down)
      : "memory");
}

// Each block of a pair fetches its own patches, and half of the filters for both. It may write into the other's stage,
// so it waits until the warps of both are done with theirs; it awaits its own bytes and the other's.
__device__ void produce(Shared& shared, const CUtensorMap& x, const CUtensorMap& filters, int top, int left, int rank,
                        int side, int channels, uint32_t& turn) {
  constexpr int SHARE = TILE_N / CLUSTER;
  const int column = top % side - 1, row = top / side % side - 1, image = top / side / side;
  const int chunks = ceil_div(channels, ROW);
  for (int i = 0; i < 9 * chunks; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    const int tap = i / chunks, channel = i % chunks * ROW;
    Barrier* full = &shared.full[stage];
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);  // in the first round there is nothing to wait for
    arrive_and_expect(full, sizeof(shared.a[0]) + sizeof(shared.b[0]));
    load_patches(shared.a[stage], &x, channel, column, row, image, tap % 3, tap / 3, full);
    load_box_to_many(shared.b[stage] + rank * SHARE * ROW, &filters, tap * channels + channel, left + rank * SHARE,
                     full, (1 << CLUSTER) - 1);
  }
}

// One tile: `turn` counts the stages that this thread has used, over all tiles.
__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int group, int rows, uint32_t& turn) {
  const auto release = [&](uint32_t used) {  // to the producers of both blocks
    if (threadIdx.x % 32 < CLUSTER) arrive_at(&shared.empty[used % STAGES], threadIdx.x % 32);
  };
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    multiply_row(sum, shared.a[stage] + group * 64 * ROW, shared.b[stage]);
    wait_for_products<1>();
    if (i >= 1) release(turn - 1);
  }
  finish_products(sum);
  release(turn - 1);
}

// Sums go through shared memory in boxes of 64 x 64, which TMA writes as whole lines while the next products run. Two
// boxes take turns.
__device__ void store_tile(Shared& shared, const CUtensorMap& out, const float (&sum)[TILE_N / 2], int group, int top,
                           int left, int m, int n) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int box = 0; box < TILE_N / ROW; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group][box % 2]);
    if (thread == 0) wait_for_stores<1>();  // the box before last has been read
    sync_group(1 + group);
#pragma unroll
    for (int j = 0; j < ROW / 16; ++j) {
      store_matrices(staged + swizzled(row, 2 * j + lane / 16), sum + ROW / 2 * box + 8 * j);
    }
    publish_tile();
    sync_group(1 + group);
    if (thread == 0) {
      if (top < m && left + box * ROW < n) store_box(&out, left + box * ROW, top, staged);
      commit_stores();
    }
  }
}

__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    convolve(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap filters,
             const __grid_constant__ CUtensorMap out, int pixels, int side, int channels, int results) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int across = ceil_div(results, TILE_N), tiles = ceil_div(pixels, CLUSTER * TILE_M) * across;
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], CLUSTER * CONSUMERS * GROUP_THREADS / 32);  // a warp of either block arrives once
    }
    publish_barriers();
  }
  sync_cluster();

  const int group = group_of_thread();
  uint32_t turn = 0;
  const auto top_of = [&](int tile) { return (tile / across * CLUSTER + rank) * TILE_M; };
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) {
      for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
        produce(shared, x, filters, top_of(tile), tile % across * TILE_N, rank, side, channels, turn);
      }
    }
  } else {
    for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
      float sum[TILE_N / 2] = {};
      consume(shared, sum, group, 9 * ceil_div(channels, ROW), turn);
      store_tile(shared, out, sum, group, top_of(tile) + group * 64, tile % across * TILE_N, pixels, results);
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
  sync_cluster();  // no block may end while the other can still arrive at its barriers
}

// Has TMA walk over images [images, side, side], 128 places at a time, with the upper left corner of a filter of 3 x 3:
// from one row and column outside an image to two before its end, as many places as pixels.
cudaError_t describe_patches(CUtensorMap* map, const bf16* x, int64_t images, int64_t side, int64_t channels) {
  // Drivers to 13.1 describe smaller images wrongly: CUTLASS mends their maps by hand.
  if (images * side * side * channels * sizeof(bf16) < 1 << 17) return cudaErrorNotSupported;
  decltype(&cuTensorMapEncodeIm2col) encode;
  TRY(find_driver_function(&encode, "cuTensorMapEncodeIm2col"));
  const cuuint64_t line = channels * sizeof(bf16);
  const cuuint64_t sizes[4] = {cuuint64_t(channels), cuuint64_t(side), cuuint64_t(side), cuuint64_t(images)};
  const cuuint64_t strides[3] = {line, line * side, line * side * side};
  const int first[2] = {-1, -1}, last[2] = {-1, -1};  // of both dimensions, from their beginnings and from their ends
  const cuuint32_t each[4] = {1, 1, 1, 1};
  const CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<bf16*>(x), sizes, strides, first,
                                 last, ROW, TILE_M, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

extern "C" int conv3x3(const __nv_bfloat16* x, const __nv_bfloat16* filters, __nv_bfloat16* out, int64_t images,
                       int64_t side, int64_t channels, int64_t results, cudaStream_t stream) {
  const int64_t pixels = images * side * side;
  if (channels % PIECE || results % PIECE || pixels > INT32_MAX) return cudaErrorInvalidValue;
  CUtensorMap map, map_filters, map_out;
  TRY(describe_patches(&map, x, images, side, channels));
  TRY(describe(&map_filters, filters, results, 9 * channels, TILE_N / CLUSTER));
  TRY(describe(&map_out, out, pixels, results, 64));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(convolve, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t tiles = ceil_div(pixels, CLUSTER * TILE_M) * ceil_div(results, TILE_N);
  const int64_t room = multiprocessors / CLUSTER;
  convolve<<<CLUSTER * (tiles < room ? tiles : room), THREADS, BYTES, stream>>>(
      map, map_filters, map_out, int(pixels), int(side), int(channels), int(results));
  return cudaGetLastError();
}
