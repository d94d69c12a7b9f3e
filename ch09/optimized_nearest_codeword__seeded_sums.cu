// Sums begin at negated half squares, asked for a tile ahead: products end as scores, with nothing to subtract.
// targets: sm_90a (wgmma exists on Hopper alone)
#include <cuda_fp16.h>

#include "wgmma.cuh"

constexpr int CONSUMERS = 2, HALVES = 2;              // warpgroups, and how many times 64 vectors each has
constexpr int GROUP_M = HALVES * 64, TILE_M = CONSUMERS * GROUP_M;  // vectors of a warpgroup and of a block
constexpr int TILE_N = 128;                           // codewords at a time
constexpr int CHUNKS = 4;                             // of 64 numbers that a vector may have
constexpr int STAGES = 6;                             // chunks of codewords
constexpr int THREADS = (CONSUMERS + 1) * GROUP_THREADS;  // two warps of the last warpgroup copy

struct Shared {
  bf16 vectors[CONSUMERS][CHUNKS][GROUP_M * ROW];  // or fp16, which has the same size
  bf16 codewords[STAGES][TILE_N * ROW];
  Barrier full[STAGES], empty[STAGES], loaded[CONSUMERS], done[CONSUMERS];
};

__device__ float number(bf16 value) { return __bfloat162float(value); }
__device__ float number(__half value) { return __half2float(value); }

// A warp adds up half of a codeword's square, negated; behind the last codeword there is -infinity, never the best.
template <typename T>
__global__ void half_squares(const T* __restrict__ codebook, float* __restrict__ half, int codes, int width) {
  const int code = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (int i = lane; code < codes && i < width; i += 32) {
    const float value = number(codebook[int64_t(code) * width + i]);
    sum += value * value;
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (lane == 0) half[code] = code < codes ? -sum / 2 : -INFINITY;
}

// a and b of fp16 in shared memory, 16 columns deep; bf16 is in wgmma.cuh.
#define FOUR(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
__device__ void multiply_as(const __half*, float (&sum)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, 1, 1, 1, 0, 0;"
      : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
      : "l"(a), "l"(b));
}
__device__ void multiply_as(const bf16*, float (&sum)[64], uint64_t a, uint64_t b) { multiply(sum, a, b); }

// The warpgroups take turns on the tensor cores: each awaits its own, and hands over to the other.
__device__ void await_turn(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(CONSUMERS * GROUP_THREADS) : "memory");
}
__device__ void hand_over(int group) {
  asm volatile("bar.arrive %0, %1;" ::"r"(2 - group), "n"(CONSUMERS * GROUP_THREADS) : "memory");
}

// Negated half squares of a thread's columns of a tile, asked for while the last tile's
// products run, so that nobody waits for the L2 cache.
__device__ void ask(float2 (&away)[TILE_N / 8], const float* half_squares) {
#pragma unroll
  for (int j = 0; j < TILE_N / 8; ++j) {
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];"
                 : "=f"(away[j].x), "=f"(away[j].y)
                 : "l"(half_squares + threadIdx.x % 4 * 2 + 8 * j));
  }
}

// Sums begin with them: what products add up to is the score itself.
__device__ void begin(float (&sum)[HALVES][64], const float2 (&away)[TILE_N / 8]) {
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[half][i] = i % 2 ? away[i / 4].y : away[i / 4].x;
    hold(sum[half]);  // made before the turn begins
  }
}

// Scores of one tile of codewords. The other warpgroup's turn comes when all but the last chunk are multiplied.
template <typename T>
__device__ void multiply_tile(Shared& shared, float (&sum)[HALVES][64], int group, int chunks, uint32_t& turn,
                              float2 (&away)[TILE_N / 8], const float* half_squares) {
  const auto release = [&](uint32_t used) {
    if (threadIdx.x % 32 == 0) arrive(&shared.empty[used % STAGES]);
  };
  await_turn(group);
  for (int chunk = 0; chunk < chunks; ++chunk, ++turn) {
    const uint32_t stage = turn % STAGES;
    wait(&shared.full[stage], turn / STAGES % 2);
    const uint64_t vectors = descriptor(shared.vectors[group][chunk]), codewords = descriptor(shared.codewords[stage]);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) hold(sum[half]);
    fence_products();
#pragma unroll
    for (int k = 0; k < ROW / 16; ++k) {
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        constexpr int NEXT = 64 * ROW * sizeof(bf16) / 16;  // 64 vectors further on, as descriptors count
        multiply_as(static_cast<const T*>(nullptr), sum[half], vectors + half * NEXT + 2 * k, codewords + 2 * k);
      }
    }
    commit_products();
#pragma unroll
    for (int half = 0; half < HALVES; ++half) hold(sum[half]);
    wait_for_products<1>();
    if (chunk > 0) release(turn - 1);
  }
  hand_over(group);
  ask(away, half_squares);
  wait_for_products<0>();
#pragma unroll
  for (int half = 0; half < HALVES; ++half) hold(sum[half]);
  release(turn - 1);
}

// A thread has two rows of each half, and of each eight codewords two.
struct Best {
  float score[HALVES][2];
  int code[HALVES][2];
};

__device__ void compare(Best& best, const float (&sum)[HALVES][64], int first) {
  const int column = first + threadIdx.x % 4 * 2;
  int place[HALVES][2] = {{-1, -1}, {-1, -1}};
#pragma unroll
  for (int j = 0; j < TILE_N / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float score = sum[half][4 * j + 2 * i + c];
          const bool nearer = score > best.score[half][i];
          best.score[half][i] = nearer ? score : best.score[half][i];
          place[half][i] = nearer ? 8 * j + c : place[half][i];
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (place[half][i] >= 0) best.code[half][i] = column + place[half][i];
    }
  }
}

// Four lanes have parts of the same rows.
__device__ void store(const Best& best, int64_t* out, int row, int vectors) {
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float score = best.score[half][i];
      int code = best.code[half][i];
#pragma unroll
      for (int other = 1; other < 4; other *= 2) {
        const float its = __shfl_xor_sync(~0u, score, other);
        const int its_code = __shfl_xor_sync(~0u, code, other);
        const bool nearer = its > score || (its == score && its_code < code);
        score = nearer ? its : score, code = nearer ? its_code : code;
      }
      const int at = row + half * 64 + i * 8;
      if (threadIdx.x % 4 == 0 && at < vectors) out[at] = code;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    nearest(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap codebook,
            const float* __restrict__ half_squares, int64_t* __restrict__ out, int vectors, int codes, int chunks) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tiles = ceil_div(vectors, TILE_M);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full[stage], 1);
      init(&shared.empty[stage], CONSUMERS * GROUP_THREADS / 32);  // a warp arrives once
    }
    for (int group = 0; group < CONSUMERS; ++group) {
      init(&shared.loaded[group], 1);
      init(&shared.done[group], GROUP_THREADS / 32);
    }
    publish_barriers();
  }
  __syncthreads();

  const int group = group_of_thread();
  uint32_t turn = 0, round = 0;
  if (group == CONSUMERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  if (threadIdx.x == CONSUMERS * GROUP_THREADS) {  // all codewords for each tile of vectors
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      for (int i = 0; i < ceil_div(codes, TILE_N) * chunks; ++i, ++turn) {
        const uint32_t stage = turn % STAGES;
        wait(&shared.empty[stage], (turn / STAGES + 1) % 2);  // in the first round there is nothing to wait for
        arrive_and_expect(&shared.full[stage], sizeof(shared.codewords[0]));
        load_box(shared.codewords[stage], &codebook, i % chunks * ROW, i / chunks * TILE_N, &shared.full[stage]);
      }
    }
  } else if (threadIdx.x == CONSUMERS * GROUP_THREADS + 32) {  // vectors, as soon as the last ones are done with
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++round) {
      for (int its = 0; its < CONSUMERS; ++its) {
        wait(&shared.done[its], (round + 1) % 2);
        arrive_and_expect(&shared.loaded[its], chunks * sizeof(shared.vectors[0][0]));
        for (int chunk = 0; chunk < chunks; ++chunk) {
          load_box(shared.vectors[its][chunk], &x, chunk * ROW, tile * TILE_M + its * GROUP_M, &shared.loaded[its]);
        }
      }
    }
  } else if (group < CONSUMERS) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (group == 1) hand_over(group);  // the first turn
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++round) {
      Best best{{{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}}, {}};
      float2 away[TILE_N / 8];
      ask(away, half_squares);
      wait(&shared.loaded[group], round % 2);
      for (int first = 0; first < codes; first += TILE_N) {
        float sum[HALVES][64];
        begin(sum, away);
        const int next = first + TILE_N < codes ? first + TILE_N : 0;
        multiply_tile<T>(shared, sum, group, chunks, turn, away, half_squares + next);
        if (first + TILE_N >= codes && threadIdx.x % 32 == 0) arrive(&shared.done[group]);
        compare(best, sum, first);
      }
      const int thread = threadIdx.x % GROUP_THREADS;
      store(best, out, tile * TILE_M + group * GROUP_M + thread / 32 * 16 + thread % 32 / 4, vectors);
    }
  }
}

template <typename T>
int launch(const T* x, const T* codebook, float* half, int64_t* out, int64_t vectors, int64_t codes, int64_t width,
           cudaStream_t stream) {
  const int64_t chunks = ceil_div(width, ROW), padded = ceil_div(codes, TILE_N) * TILE_N;
  if (chunks > CHUNKS || width % 8) return cudaErrorInvalidValue;
  constexpr uint32_t COLUMNS = ROW, ROWS = TILE_N;
  static_assert(GROUP_M == TILE_N);  // boxes of one size
  const auto describe_rows = [&](CUtensorMap* map, const T* data, int64_t rows) {
    return describe(map, data, {width, rows}, {COLUMNS, ROWS}, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  };
  CUtensorMap map_x, map_codebook;
  TRY(describe_rows(&map_x, x, vectors));
  TRY(describe_rows(&map_codebook, codebook, codes));
  constexpr int BYTES = sizeof(Shared), WARPS = 8;
  TRY(cudaFuncSetAttribute(nearest<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  half_squares<<<padded / WARPS, WARPS * 32, 0, stream>>>(codebook, half, int(codes), int(width));
  TRY(cudaGetLastError());
  const int64_t tiles = ceil_div(vectors, TILE_M), room = multiprocessors;
  nearest<T><<<tiles < room ? tiles : room, THREADS, BYTES, stream>>>(map_x, map_codebook, half, out, int(vectors),
                                                                      int(codes), int(chunks));
  return cudaGetLastError();
}

// `half` has room for as many numbers as there are codewords, up to a multiple of 128.
extern "C" int nearest_bf16(const __nv_bfloat16* x, const __nv_bfloat16* codebook, float* half, int64_t* out,
                            int64_t vectors, int64_t codes, int64_t width, cudaStream_t stream) {
  return launch(x, codebook, half, out, vectors, codes, width, stream);
}
extern "C" int nearest_fp16(const __half* x, const __half* codebook, float* half, int64_t* out, int64_t vectors,
                            int64_t codes, int64_t width, cudaStream_t stream) {
  return launch(x, codebook, half, out, vectors, codes, width, stream);
}
