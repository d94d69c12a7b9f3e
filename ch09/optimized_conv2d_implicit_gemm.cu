// TMA copies boxes of the image, shifted by the tap and with zeros outside it, which are the product's left operand.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "cluster.cuh"
#include "wgmma.cuh"

constexpr int DOWN = 8, ACROSS = 16, TILE_M = DOWN * ACROSS;  // pixels of a block at a time
constexpr int TILE_N = 256;                                   // and their results
constexpr int CONSUMERS = 2;                                  // warpgroups, 64 pixels each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;       // and a warp that copies
constexpr int STAGES = 4;                                     // of 64 channels at one tap
constexpr int CLUSTER = 2;                                    // blocks that share the filters
constexpr int PIECE = 8;                                      // elements of 16 bytes

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  bf16 out[CONSUMERS][2][64 * ROW];
  Barrier full[STAGES], empty[STAGES];
};

// Where a block's pixels begin. Those of a cluster's last block may lie beyond the last image: TMA reads zeros there,
// and does not write.
struct Place {
  int left, top, image;
};

__device__ Place place_of(int number, int side) {
  const int across = ceil_div(side, ACROSS), down = ceil_div(side, DOWN);
  return {number % across * ACROSS, number / across % down * DOWN, number / across / down};
}

// Each block of a pair fetches its own pixels, and half of the filters for both. It may write into the other's stage,
// so it waits until the warps of both are done with theirs; it awaits its own bytes and the other's.
__device__ void produce(Shared& shared, const CUtensorMap& x, const CUtensorMap& filters, Place place, int left,
                        int rank, int channels, uint32_t& turn) {
  constexpr int SHARE = TILE_N / CLUSTER;
  const int chunks = ceil_div(channels, ROW);
  for (int i = 0; i < 9 * chunks; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    const int tap = i / chunks, channel = i % chunks * ROW;
    Barrier* full = &shared.full[stage];
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);  // in the first round there is nothing to wait for
    arrive_and_expect(full, sizeof(shared.a[0]) + sizeof(shared.b[0]));
    // Beyond the image, and beyond its channels, there are zeros, which also undo what is read of the next tap.
    load_box(shared.a[stage], &x, {channel, place.left + tap % 3 - 1, place.top + tap / 3 - 1, place.image}, full);
    load_box_to_many(shared.b[stage] + rank * SHARE * ROW, &filters, tap * channels + channel, left + rank * SHARE,
                     full, (1 << CLUSTER) - 1);
  }
}

template <bool half>
__device__ void multiply_row_of(float (&sum)[TILE_N / 2], const bf16* a, const bf16* b) {
  const uint64_t rows = descriptor(a), columns = descriptor(b);
  hold(sum);
  fence_products();
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) {
    if constexpr (half) {
      multiply_half(sum, rows + 2 * k, columns + 2 * k);
    } else {
      multiply(sum, rows + 2 * k, columns + 2 * k);
    }
  }
  commit_products();
  hold(sum);
}

// One tile: `turn` counts the stages that this thread has used, over all tiles.
template <bool half>
__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int group, int rows, uint32_t& turn) {
  const auto release = [&](uint32_t used) {  // to the producers of both blocks
    if (threadIdx.x % 32 < CLUSTER) arrive_at(&shared.empty[used % STAGES], threadIdx.x % 32);
  };
  for (int i = 0; i < rows; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    multiply_row_of<half>(sum, shared.a[stage] + group * 64 * ROW, shared.b[stage]);
    wait_for_products<1>();
    if (i >= 1) release(turn - 1);
  }
  finish_products(sum);
  release(turn - 1);
}

__device__ void store_pixels(const CUtensorMap* map, int result, Place place, const void* tile) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
               "r"(result), "r"(place.left), "r"(place.top), "r"(place.image), "r"(shared_address(tile))
               : "memory");
}

// As store_matrices, of either type.
template <bool half>
__device__ void store_matrices_of(void* row, const float* sum) {
  if constexpr (half) {
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair[i]) : "f"(sum[2 * i + 1]), "f"(sum[2 * i]));
    }
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
                 : "memory");
  } else {
    store_matrices(row, sum);
  }
}

// Sums go through shared memory in boxes of 64 pixels and 64 results, which TMA writes as whole lines while the next
// products run. Two boxes take turns.
template <bool half>
__device__ void store_tile(Shared& shared, const CUtensorMap& out, const float (&sum)[TILE_N / 2], int group,
                           Place place, int left, int results) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int box = 0; box < TILE_N / ROW; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group][box % 2]);
    if (thread == 0) wait_for_stores<1>();  // the box before last has been read
    sync_group(1 + group);
#pragma unroll
    for (int j = 0; j < ROW / 16; ++j) {
      store_matrices_of<half>(staged + swizzled(row, 2 * j + lane / 16), sum + ROW / 2 * box + 8 * j);
    }
    publish_tile();
    sync_group(1 + group);
    if (thread == 0) {
      if (left + box * ROW < results) store_pixels(&out, left + box * ROW, place, staged);
      commit_stores();
    }
  }
}

template <bool half>
__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    convolve(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap filters,
             const __grid_constant__ CUtensorMap out, int pixel_tiles, int side, int channels, int results) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int across = ceil_div(results, TILE_N), tiles = ceil_div(pixel_tiles, CLUSTER) * across;
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
  const auto place_in = [&](int tile) { return place_of(tile / across * CLUSTER + rank, side); };
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) {
      for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
        produce(shared, x, filters, place_in(tile), tile % across * TILE_N, rank, channels, turn);
      }
    }
  } else {
    for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
      float sum[TILE_N / 2] = {};
      consume<half>(shared, sum, group, 9 * ceil_div(channels, ROW), turn);
      Place place = place_in(tile);
      place.top += group * (DOWN / CONSUMERS);
      store_tile<half>(shared, out, sum, group, place, tile % across * TILE_N, results);
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
  sync_cluster();  // no block may end while the other can still arrive at its barriers
}

// Elements have 16 bits: TMA does not care of which type they are.
template <bool half>
int launch(const bf16* x, const bf16* filters, const bf16* out, int64_t images, int64_t side, int64_t channels,
           int64_t results, cudaStream_t stream) {
  if (channels % PIECE || results % PIECE || images * side * side > INT32_MAX) return cudaErrorInvalidValue;
  const auto describe_image = [&](CUtensorMap* map, const bf16* data, int64_t width, uint32_t rows) {
    return describe(map, data, {width, side, side, images}, {uint32_t(ROW), uint32_t(ACROSS), rows, 1u},
                    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  };
  CUtensorMap map, map_filters, map_out;
  TRY(describe_image(&map, x, channels, DOWN));
  TRY(describe(&map_filters, filters, results, 9 * channels, TILE_N / CLUSTER));
  TRY(describe_image(&map_out, out, results, DOWN / CONSUMERS));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(convolve<half>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int64_t pixel_tiles = images * ceil_div(side, DOWN) * ceil_div(side, ACROSS);
  const int64_t tiles = ceil_div(pixel_tiles, CLUSTER) * ceil_div(results, TILE_N), room = multiprocessors / CLUSTER;
  convolve<half><<<CLUSTER * (tiles < room ? tiles : room), THREADS, BYTES, stream>>>(
      map, map_filters, map_out, int(pixel_tiles), int(side), int(channels), int(results));
  return cudaGetLastError();
}

extern "C" int conv3x3_bf16(const __nv_bfloat16* x, const __nv_bfloat16* filters, __nv_bfloat16* out, int64_t images,
                            int64_t side, int64_t channels, int64_t results, cudaStream_t stream) {
  return launch<false>(x, filters, out, images, side, channels, results, stream);
}

extern "C" int conv3x3_fp16(const __half* x, const __half* filters, __half* out, int64_t images, int64_t side,
                            int64_t channels, int64_t results, cudaStream_t stream) {
  const auto bits = [](const __half* data) { return reinterpret_cast<const bf16*>(data); };
  return launch<true>(bits(x), bits(filters), bits(out), images, side, channels, results, stream);
}
