// Experiment: wgmma in e4m3, pairs of blocks share the rows of an expert, the last rows of an expert take one warpgroup.
// targets: sm_90a (wgmma exists on Hopper alone)
#include <cuda_fp8.h>

#include "hopper.cuh"

// The product's copies and descriptors take two numbers for one bf16: ROW is 64 such pairs.

constexpr int TILE_M = 128, TILE_N = 256;                // rows and outputs of a block at a time
constexpr int CONSUMERS = 2;                             // warpgroups, 64 rows each
constexpr int THREADS = CONSUMERS * GROUP_THREADS + 32;  // and a warp that copies
constexpr int STAGES = 4;
constexpr int CLUSTER = 2;  // blocks, side by side: they share the rows
constexpr int PIECE = 8;    // results of 16 bytes

struct Shared {
  bf16 a[STAGES][TILE_M * ROW];
  bf16 b[STAGES][TILE_N * ROW];
  bf16 out[CONSUMERS][2][64 * ROW];
  Barrier full[STAGES], empty[STAGES];
};

// Where a tile lies. Tiles go down an expert's rows, then to its next outputs: they share the weights.
struct Place {
  int expert = -1, tiles_before = 0, tiles = 0;  // of this expert
  int begin = 0, end = 0;                        // its rows
  int top, left;                                 // of the tile, which is to be found in ascending order

  __device__ bool find(int tile, const int* ends, int experts, int outputs) {
    const int across = ceil_div(outputs, CLUSTER * TILE_N);
    while (tile >= tiles_before + tiles) {
      if (++expert == experts) return false;
      tiles_before += tiles;
      begin = end;
      end = __ldg(ends + expert);
      tiles = ceil_div(end - begin, TILE_M) * across;
    }
    const int down = tiles / across, rest = tile - tiles_before;
    top = begin + rest % down * TILE_M;
    left = rest / down * CLUSTER * TILE_N;
    return true;
  }
};

__device__ inline void multiply_fp8(float (&sum)[128], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, "
      "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "
      "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "
      "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "
      "%123, %124, %125, %126, %127}, "
      "%128, %129, 1, 1, 1;"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),
        "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]),
        "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]),
        "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]),
        "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),
        "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]),
        "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]), "+f"(sum[49]),
        "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]),
        "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63]),
        "+f"(sum[64]), "+f"(sum[65]), "+f"(sum[66]), "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]), "+f"(sum[70]),
        "+f"(sum[71]), "+f"(sum[72]), "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75]), "+f"(sum[76]), "+f"(sum[77]),
        "+f"(sum[78]), "+f"(sum[79]), "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]), "+f"(sum[84]),
        "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]), "+f"(sum[88]), "+f"(sum[89]), "+f"(sum[90]), "+f"(sum[91]),
        "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95]), "+f"(sum[96]), "+f"(sum[97]), "+f"(sum[98]),
        "+f"(sum[99]), "+f"(sum[100]), "+f"(sum[101]), "+f"(sum[102]), "+f"(sum[103]), "+f"(sum[104]), "+f"(sum[105]),
        "+f"(sum[106]), "+f"(sum[107]), "+f"(sum[108]), "+f"(sum[109]), "+f"(sum[110]), "+f"(sum[111]), "+f"(sum[112]),
        "+f"(sum[113]), "+f"(sum[114]), "+f"(sum[115]), "+f"(sum[116]), "+f"(sum[117]), "+f"(sum[118]), "+f"(sum[119]),
        "+f"(sum[120]), "+f"(sum[121]), "+f"(sum[122]), "+f"(sum[123]), "+f"(sum[124]), "+f"(sum[125]), "+f"(sum[126]),
        "+f"(sum[127])
      : "l"(a), "l"(b));
}

// One tile's row of 128 numbers: four products, each 32 numbers deep.
__device__ void multiply_row_fp8(float (&sum)[TILE_N / 2], const bf16* a, const bf16* b) {
  const uint64_t rows = descriptor(a), columns = descriptor(b);
  hold(sum);
  fence_products();
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) multiply_fp8(sum, rows + 2 * k, columns + 2 * k);
  commit_products();
  hold(sum);
}

// Each block of a pair fetches its own weights, and half of the rows for both. It may write into the other's stage, so it
// waits until the warps of both are done with theirs; it awaits its own bytes and the other's.
__device__ void produce(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, int top, int weight, int rank,
                        int steps, uint32_t& turn) {
  constexpr int SHARE = TILE_M / CLUSTER;
  for (int i = 0; i < steps; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.empty[stage], (turn / STAGES + 1) % 2);
    arrive_and_expect(&shared.full[stage], sizeof(shared.a[0]) + sizeof(shared.b[0]));
    load_box_to_many(shared.a[stage] + rank * SHARE * ROW, &a, i * ROW, top + rank * SHARE, &shared.full[stage],
                     (1 << CLUSTER) - 1);
    load_box(shared.b[stage], &b, i * ROW, weight, &shared.full[stage]);
  }
}

// To the producers of both blocks: this warp is done with a stage.
__device__ void release(Shared& shared, uint32_t used) {
  if (threadIdx.x % 32 < CLUSTER) arrive_at(&shared.empty[used % STAGES], threadIdx.x % 32);
}

// One tile: `turn` counts the stages that this thread has used, over all tiles.
__device__ void consume(Shared& shared, float (&sum)[TILE_N / 2], int group, int steps, uint32_t& turn) {
  for (int i = 0; i < steps; ++i, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    multiply_row_fp8(sum, shared.a[stage] + group * 64 * ROW, shared.b[stage]);
    wait_for_products<1>();
    if (i >= 1) release(shared, turn - 1);
  }
  finish_products(sum);
  release(shared, turn - 1);
}

// A warpgroup whose rows are not this expert's gives the stages back: the other has the tensor cores for itself.
__device__ void skip(Shared& shared, int steps, uint32_t& turn) {
  for (int i = 0; i < steps; ++i, ++turn) {
    wait(&shared.full[turn % STAGES], turn / STAGES % 2);
    release(shared, turn);
  }
}

// Scales the sums, as store_sums() finds them, by their row and output. Beyond `end` and `outputs` scales are zero.
__device__ void scale(float (&sum)[TILE_N / 2], const float* by_row, const float* by_output, int top, int end, int left,
                      int outputs) {
  const int thread = threadIdx.x % GROUP_THREADS, row = top + thread / 32 * 16 + thread % 32 / 4;
  const float of_row[2] = {row < end ? by_row[row] : 0, row + 8 < end ? by_row[row + 8] : 0};
#pragma unroll
  for (int j = 0; j < TILE_N / 8; ++j) {
    const int column = left + 8 * j + thread % 4 * 2;
    const float2 none = {0, 0}, of = column < outputs ? *reinterpret_cast<const float2*>(by_output + column) : none;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[4 * j + 2 * i] *= of_row[i] * of.x;
      sum[4 * j + 2 * i + 1] *= of_row[i] * of.y;
    }
  }
}

// Results go through shared memory in boxes of 64 x 64, which TMA writes as whole lines while the next products run; the
// threads write those of an expert's last rows, below which the next expert's begin. Two boxes take turns.
__device__ void store_tile(Shared& shared, const CUtensorMap& map, bf16* out, const float (&sum)[TILE_N / 2], int group,
                           int top, int end, int left, int outputs) {
  const int thread = threadIdx.x % GROUP_THREADS, lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int box = 0; box < TILE_N / ROW; ++box) {
    char* staged = reinterpret_cast<char*>(shared.out[group][box % 2]);
    const int column = left + box * ROW;
    if (thread == 0) wait_for_stores<1>();  // the box before last has been read
    sync_group(1 + group);
#pragma unroll
    for (int j = 0; j < ROW / 16; ++j) {
      store_matrices(staged + swizzled(row, 2 * j + lane / 16), sum + ROW / 2 * box + 8 * j);
    }
    publish_tile();
    sync_group(1 + group);
    if (top + 64 <= end) {
      if (thread == 0 && column < outputs) store_box(&map, column, top, staged);
    } else {
      const int piece = thread % 8, at = column + piece * PIECE;
      for (int r = thread / 8; r < min(64, end - top) && at < outputs; r += GROUP_THREADS / 8) {
        *reinterpret_cast<uint4*>(out + int64_t(top + r) * outputs + at) =
            *reinterpret_cast<const uint4*>(staged + swizzled(r, piece));
      }
    }
    if (thread == 0) commit_stores();
  }
}

__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    grouped_product(const __grid_constant__ CUtensorMap rows, const __grid_constant__ CUtensorMap weights,
                    const __grid_constant__ CUtensorMap map_out, bf16* __restrict__ out,
                    const float* __restrict__ by_row, const float* __restrict__ by_output,
                    const int* __restrict__ ends, int experts, int outputs, int steps) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
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
  Place place;
  if (group == CONSUMERS) {
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) {
      for (int tile = blockIdx.x / CLUSTER; place.find(tile, ends, experts, outputs); tile += gridDim.x / CLUSTER) {
        const int weight = place.expert * outputs + place.left + rank * TILE_N;
        produce(shared, rows, weights, place.top, weight, rank, steps, turn);
      }
    }
  } else {
    for (int tile = blockIdx.x / CLUSTER; place.find(tile, ends, experts, outputs); tile += gridDim.x / CLUSTER) {
      const int top = place.top + group * 64, left = place.left + rank * TILE_N;
      if (top >= place.end) {
        skip(shared, steps, turn);
        continue;
      }
      float sum[TILE_N / 2] = {};
      consume(shared, sum, group, steps, turn);
      scale(sum, by_row, by_output + int64_t(place.expert) * outputs, top, place.end, left, outputs);
      store_tile(shared, map_out, out, sum, group, top, place.end, left, outputs);
    }
    if (threadIdx.x % GROUP_THREADS == 0) wait_for_stores<0>();  // shared memory must outlast them
  }
  sync_cluster();  // no block may end while the other can still arrive at its barriers
}

static const bf16* pairs(const __nv_fp8_e4m3* numbers) { return reinterpret_cast<const bf16*>(numbers); }

extern "C" int grouped(const __nv_fp8_e4m3* rows, const __nv_fp8_e4m3* weights, __nv_bfloat16* out, const float* by_row,
                       const float* by_output, const int* ends, int64_t tokens, int64_t experts, int64_t outputs,
                       int64_t width, cudaStream_t stream) {
  if (outputs % PIECE || width % 16) return cudaErrorInvalidValue;
  CUtensorMap map_rows, map_weights, map_out;
  if (const cudaError_t error = describe(&map_rows, pairs(rows), tokens, width / 2, TILE_M / CLUSTER)) return error;
  if (const cudaError_t error = describe(&map_weights, pairs(weights), experts * outputs, width / 2, TILE_N)) {
    return error;
  }
  if (const cudaError_t error = describe(&map_out, out, tokens, outputs, 64)) return error;
  constexpr int BYTES = sizeof(Shared);
  const auto opt_in = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(grouped_product, opt_in, BYTES)) return error;
  int device = 0, multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  grouped_product<<<multiprocessors / CLUSTER * CLUSTER, THREADS, BYTES, stream>>>(
      map_rows, map_weights, map_out, out, by_row, by_output, ends, int(experts), int(outputs),
      int(ceil_div(width / 2, ROW)));
  return cudaGetLastError();
}
