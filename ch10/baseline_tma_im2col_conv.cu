// All threads find the addresses of patches, pixel by pixel, and copy them by cp.async into tiles that wgmma reads.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "ampere.cuh"
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = 256;   // pixels and results of a block
constexpr int THREADS = 2 * GROUP_THREADS;  // 64 pixels a warpgroup
constexpr int STAGES = 4;                   // of 64 channels at one tap: filled two ahead
constexpr int PIECE = 8;                    // elements of 16 bytes
constexpr int MINE = TILE_M * 8 / THREADS;  // pixels of a tile of which a thread copies a piece

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  Barrier full[STAGES];
};

__global__ void __launch_bounds__(THREADS, 1)
    convolve(const bf16* __restrict__ x, const __grid_constant__ CUtensorMap filters, bf16* __restrict__ out,
             int pixels, int side, int channels, int results) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int top = blockIdx.y * TILE_M, left = blockIdx.x * TILE_N, chunks = ceil_div(channels, ROW);
  const int steps = 9 * chunks, group = group_of_thread(), first = threadIdx.x / 8, piece = threadIdx.x % 8;
  if (threadIdx.x == 0) {
    for (Barrier& barrier : shared.full) init(&barrier, 1);
    publish_barriers();
  }
  __syncthreads();

  int row[MINE], column[MINE];  // in its image; a row far outside, if there is no such pixel
#pragma unroll
  for (int j = 0; j < MINE; ++j) {
    const int pixel = top + first + j * (TILE_M / MINE);
    row[j] = pixel < pixels ? pixel / side % side : -2;
    column[j] = pixel % side;
  }
  const auto load = [&](int i) {  // a group of copies for each step, empty at the end, so that they can be counted
    if (i < steps) {
      const int stage = i % STAGES, tap = i / chunks, down = tap / 3 - 1, right = tap % 3 - 1;
      const int channel = i % chunks * ROW + piece * PIECE;
      if (threadIdx.x == 0) {
        arrive_and_expect(&shared.full[stage], sizeof(shared.b[0]));
        load_box(shared.b[stage], &filters, tap * channels + i % chunks * ROW, left, &shared.full[stage]);
      }
#pragma unroll
      for (int j = 0; j < MINE; ++j) {
        const int at = first + j * (TILE_M / MINE);
        const bool inside = uint32_t(row[j] + down) < uint32_t(side) && uint32_t(column[j] + right) < uint32_t(side) &&
                            channel < channels;
        const int64_t pixel = int64_t(top) + at + down * side + right;
        char* to = reinterpret_cast<char*>(shared.a[stage]) + swizzled(at, piece);
        copy_async<16>(to, inside ? x + pixel * channels + channel : x, inside ? 16 : 0);
      }
    }
    commit_copies();
  };
  for (int i = 0; i < STAGES - 2; ++i) load(i);

  float sum[TILE_N / 2] = {};
  for (int i = 0; i < steps; ++i) {
    wait_for_copies<STAGES - 3>();
    publish_tile();
    wait(&shared.full[i % STAGES], i / STAGES % 2);
    __syncthreads();  // this stage is here, and the products before the last have ended in all warps
    multiply_row(sum, shared.a[i % STAGES] + group * 64 * ROW, shared.b[i % STAGES]);
    load(i + STAGES - 2);
    wait_for_products<1>();
  }
  finish_products(sum);
  store_sums(sum, out, int64_t(top) + group * 64, left, pixels, results);
}

extern "C" int conv3x3(const __nv_bfloat16* x, const __nv_bfloat16* filters, __nv_bfloat16* out, int64_t images,
                       int64_t side, int64_t channels, int64_t results, cudaStream_t stream) {
  const int64_t pixels = images * side * side;
  if (channels % PIECE || results % PIECE || pixels > INT32_MAX) return cudaErrorInvalidValue;
  CUtensorMap map;
  TRY(describe(&map, filters, results, 9 * channels, TILE_N));
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(convolve, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const dim3 grid(ceil_div(results, TILE_N), ceil_div(pixels, TILE_M));
  convolve<<<grid, THREADS, BYTES, stream>>>(x, map, out, int(pixels), int(side), int(channels), int(results));
  return cudaGetLastError();
}
