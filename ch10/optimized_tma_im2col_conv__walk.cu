// TMA walks over pixels and finds their patches, zeros outside the image too: one thread copies for the block.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 256;                // pixels and results of a block
constexpr int CONSUMERS = 2;                             // warpgroups, 64 pixels each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;                                // of 64 channels at one tap
constexpr int PIECE = 8;                                 // elements of 16 bytes

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
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

__device__ void produce(Shared& shared, const CUtensorMap& x, const CUtensorMap& filters, int top, int left, int side,
                        int channels) {
  const int column = top % side - 1, row = top / side % side - 1, image = top / side / side;
  const int chunks = ceil_div(channels, ROW);
  for (int i = 0; i < 9 * chunks; ++i) {
    const int stage = i % STAGES, tap = i / chunks, channel = i % chunks * ROW;
    Barrier* full = &shared.full[stage];
    wait(&shared.empty[stage], (i / STAGES + 1) % 2);  // in the first round there is nothing to wait for
    arrive_and_expect(full, sizeof(shared.a[0]) + sizeof(shared.b[0]));
    load_patches(shared.a[stage], &x, channel, column, row, image, tap % 3, tap / 3, full);
    load_box(shared.b[stage], &filters, tap * channels + channel, left, full);
  }
}

__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int group, int steps) {
  for (int i = 0; i < steps; ++i) {
    const int stage = i % STAGES;
    wait(&shared.full[stage], i / STAGES % 2);
    multiply_row(sum, shared.a[stage] + group * 64 * ROW, shared.b[stage]);
    wait_for_products<1>();  // those of the step before have ended, so this warp is done with its stage
    if (i >= 1 && threadIdx.x % 32 == 0) arrive(&shared.empty[(i - 1) % STAGES]);
  }
  finish_products(sum);
}

__global__ void __launch_bounds__(THREADS, 1)
    convolve(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap filters,
             bf16* __restrict__ out, int pixels, int side, int channels, int results) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int top = blockIdx.y * TILE_M, left = blockIdx.x * TILE_N;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], CONSUMERS * GROUP_THREADS / 32);  // a warp arrives once
    }
    publish_barriers();
  }
  __syncthreads();

  const int group = group_of_thread();
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) produce(shared, x, filters, top, left, side, channels);
  } else {
    float sum[TILE_N / 2] = {};
    consume(shared, sum, group, 9 * ceil_div(channels, ROW));
    store_sums(sum, out, int64_t(top) + group * 64, left, pixels, results);
  }
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
  CUtensorMap map, map_filters;
  TRY(describe_patches(&map, x, images, side, channels));
  TRY(describe(&map_filters, filters, results, 9 * channels, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(convolve, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const dim3 grid(ceil_div(results, TILE_N), ceil_div(pixels, TILE_M));
  convolve<<<grid, THREADS, BYTES, stream>>>(map, map_filters, out, int(pixels), int(side), int(channels),
                                             int(results));
  return cudaGetLastError();
}
