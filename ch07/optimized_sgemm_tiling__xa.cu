// A block for each multiprocessor takes tiles one after the other, and all blocks share those of the last round.
// spills: 8 bytes, once a tile
#include "ampere.cuh"

constexpr int SQUARES_M = 4, SQUARES_N = 2;  // of 4 x 4 elements, a thread
constexpr int WARPS_M = 2, WARPS_N = 4;      // of 8 x 4 lanes, a block
constexpr int DEPTH = 16;                    // of k, in shared memory at a time
constexpr int STAGES = 3;                    // as many of them: one is multiplied, the others are fetched

constexpr int WARP_M = 8 * 4 * SQUARES_M, WARP_N = 4 * 4 * SQUARES_N;
constexpr int TILE_M = WARPS_M * WARP_M, TILE_N = WARPS_N * WARP_N, THREADS = 32 * WARPS_M * WARPS_N;
constexpr bool SHARE = true;                   // the tiles of the last round between all blocks
constexpr int PAD = 4;  // floats: rows of the transposed tile stay at multiples of 16 bytes, and its writes spread

struct Shared {
  float a[STAGES][DEPTH][TILE_M + PAD];  // transposed, so that rows of a are neighbours
  float b[STAGES][DEPTH][TILE_N];
};

// Start copying `bytes`, or as many zeros if the source lies outside.
template <int bytes>
__device__ void copy(float* to, const float* from, bool inside) {
  const auto place = shared_address(to);
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
  }
}

// Four floats of shared memory in one access.
__device__ void fetch(float* to, const float* from) {
  const float4 piece = *reinterpret_cast<const float4*>(from);
  to[0] = piece.x, to[1] = piece.y, to[2] = piece.z, to[3] = piece.w;
}

// Start copying a stage of sizes that are multiples of the tiles': no bounds, and rows of b 16 bytes at a time.
__device__ void load_whole(Shared& shared, int stage, const float* a, const float* b, int64_t n, int64_t k) {
  static_assert(THREADS % DEPTH == 0 && TILE_M * DEPTH % THREADS == 0);
  const int column = threadIdx.x % DEPTH, row = threadIdx.x / DEPTH;
  const float* from = a + row * k + column;
#pragma unroll
  for (int r = 0; r < TILE_M; r += THREADS / DEPTH, from += THREADS / DEPTH * k) {
    copy<4>(&shared.a[stage][column][row + r], from, true);
  }
  constexpr int PIECES = TILE_N / 4;  // of a row of b
  static_assert(THREADS % PIECES == 0 && DEPTH % (THREADS / PIECES) == 0);
  const int b_row = threadIdx.x / PIECES, b_column = threadIdx.x % PIECES * 4;
  from = b + b_row * n + b_column;
#pragma unroll
  for (int r = 0; r < DEPTH; r += THREADS / PIECES, from += THREADS / PIECES * n) {
    copy<16>(&shared.b[stage][b_row + r][b_column], from, true);
  }
}

// The same of any sizes, float by float: `rows`, `columns` and `depth` are left from here to the ends of the matrices.
__device__ void load_checked(Shared& shared, int stage, const float* a, const float* b, int64_t n, int64_t k,
                             int64_t rows, int64_t columns, int64_t depth) {
#pragma unroll 1
  for (int i = threadIdx.x; i < TILE_M * DEPTH; i += THREADS) {
    const int row = i / DEPTH, column = i % DEPTH;
    const bool inside = row < rows && column < depth;
    copy<4>(&shared.a[stage][column][row], inside ? a + row * k + column : a, inside);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < DEPTH * TILE_N; i += THREADS) {
    const int row = i / TILE_N, column = i % TILE_N;
    const bool inside = row < depth && column < columns;
    copy<4>(&shared.b[stage][row][column], inside ? b + row * n + column : b, inside);
  }
}

// What a block does: it begins a tile that another ends, multiplies whole tiles, and ends a tile that others began. The
// last tiles, too few for a whole round, are cut into runs of depths of one length for all blocks.
struct Piece {
  int tile, first, last;  // and its depths
};

struct Plan {
  int tiles, depths, blocks;

  __device__ int rounds() const { return tiles / blocks; }
  __device__ int shared_tiles() const { return tiles % blocks; }
  __device__ int start_of(int block) const {  // of its run: depths of the shared tiles, laid end to end
    if (!SHARE) return min(block, shared_tiles()) * depths;
    const int all = shared_tiles() * depths;
    return all / blocks * block + min(block, all % blocks);
  }
  __device__ int pieces() const { return rounds() + 2; }
  __device__ Piece piece(int block, int number) const {
    if (number > 0 && number <= rounds()) return {(number - 1) * blocks + block, 0, depths};
    const int start = start_of(block), end = start_of(block + 1), border = max(end / depths * depths, start);
    const int first = number == 0 ? border : start, last = number == 0 ? end : border, tile = first / depths;
    return {rounds() * blocks + tile, first - tile * depths, last - tile * depths};
  }
};

template <bool whole>
__global__ void __launch_bounds__(THREADS, 1)
    product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, float4* parts,
            int* done, int64_t m, int64_t n, int64_t k) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int tiles_n = ceil_div(n, TILE_N), block = blockIdx.x;
  const Plan plan{int(ceil_div(m, TILE_M)) * tiles_n, int(ceil_div(k, DEPTH)), int(gridDim.x)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Eight lanes share a cycle of 16-byte accesses; in this order they want four pieces of a and two of b.
  const int x = warp % WARPS_N * WARP_N + (lane / 16 * 2 + lane % 2) * 4;
  const int y = warp / WARPS_N * WARP_M + lane / 2 % 8 * 4;

  int number = -1, depths_left = 0;  // of the piece that is loaded, some stages before it is multiplied
  const float *from_a = a, *from_b = b;
  int64_t rows_left = 0, columns_left = 0, k_left = 0;  // from there to the ends of the matrices
  const auto next_depth = [&] {
    if (depths_left > 1) {
      --depths_left;
      from_a += DEPTH, from_b += DEPTH * n, k_left -= DEPTH;
      return;
    }
    while (++number < plan.pieces()) {
      const Piece piece = plan.piece(block, number);
      if (piece.first == piece.last) continue;
      const int64_t top = int64_t(piece.tile / tiles_n) * TILE_M, left = int64_t(piece.tile % tiles_n) * TILE_N;
      const int64_t start = int64_t(piece.first) * DEPTH;
      depths_left = piece.last - piece.first;
      rows_left = m - top, columns_left = n - left, k_left = k - start;
      from_a = a + top * k + start, from_b = b + start * n + left;
      return;
    }  // after the last one: once more what came last, which nobody multiplies
  };
  const auto load = [&](int stage) {
    if constexpr (whole) load_whole(shared, stage, from_a, from_b, n, k);
    else load_checked(shared, stage, from_a, from_b, n, k, rows_left, columns_left, k_left);
    commit_copies();
  };
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    next_depth();
    if (depths_left == 0) return;  // fewer depths than blocks
    load(stage);
  }

  float sum[4 * SQUARES_M][4 * SQUARES_N];
  float of_a[2][4 * SQUARES_M], of_b[2][4 * SQUARES_N];  // of this step of k and of the next, in turns
  const auto read = [&](int set, int stage, int i) {
#pragma unroll
    for (int s = 0; s < SQUARES_M; ++s) fetch(of_a[set] + 4 * s, &shared.a[stage][i][y + s * 32]);
#pragma unroll
    for (int s = 0; s < SQUARES_N; ++s) fetch(of_b[set] + 4 * s, &shared.b[stage][i][x + s * 16]);
  };
  wait_for_copies<STAGES - 2>();
  __syncthreads();
  read(0, 0, 0);
  int stage = 0, spare = STAGES - 1;
#pragma unroll 1
  for (int at = 0; at < plan.pieces(); ++at) {
    const Piece piece = plan.piece(block, at);
    if (piece.first == piece.last) continue;
#pragma unroll
    for (int r = 0; r < 4 * SQUARES_M; ++r) {
#pragma unroll
      for (int c = 0; c < 4 * SQUARES_N; ++c) sum[r][c] = 0;
    }
#pragma unroll 1
    for (int depth = piece.first; depth < piece.last; ++depth) {
      const int next = stage + 1 < STAGES ? stage + 1 : 0;
      next_depth();
#pragma unroll
      for (int i = 0; i < DEPTH; ++i) {
        if (i == 0) load(spare);
        if (i + 1 < DEPTH) {
          read((i + 1) % 2, stage, i + 1);
        } else {  // the products of the last step hide the way into the next stage, of the next tile too
          wait_for_copies<STAGES - 2>();
          __syncthreads();  // the next stage is here, and all warps have read this one, which is filled again
          read(0, next, 0);
        }
#pragma unroll
        for (int r = 0; r < 4 * SQUARES_M; ++r) {
#pragma unroll
          for (int c = 0; c < 4 * SQUARES_N; ++c) sum[r][c] += of_a[i % 2][r] * of_b[i % 2][c];
        }
      }
      spare = stage;
      stage = next;
    }
    constexpr int PARTS = 4 * SQUARES_M * SQUARES_N;  // of four sums, a thread
    if (piece.last < plan.depths) {                   // another block has the end, and adds these
#pragma unroll
      for (int r = 0; r < 4 * SQUARES_M; ++r) {
#pragma unroll
        for (int c = 0; c < 4 * SQUARES_N; c += 4) {
          parts[(int64_t(block) * PARTS + r * SQUARES_N + c / 4) * THREADS + threadIdx.x] = {
              sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]};
        }
      }
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) atomicExch(done + block, 1);
      continue;
    }
    // Those who began this tile did so before all else, and wait for nobody.
    const int begin = (piece.tile - plan.rounds() * plan.blocks) * plan.depths;
    for (int other = block; piece.first > 0 && plan.start_of(other) > begin;) {
      --other;
      if (plan.start_of(other) == plan.start_of(other + 1)) continue;  // fewer depths than blocks
      if (threadIdx.x == 0) {
        while (atomicCAS(done + other, 1, 0) == 0) {
        }
        __threadfence();
      }
      wait_for_all_copies();
      __syncthreads();  // nobody needs the stages any more: they are room for half of the parts at a time
      constexpr int HALF = PARTS / 2;
      static_assert(HALF * THREADS * sizeof(float4) <= sizeof(Shared));
      float4* staged = reinterpret_cast<float4*>(memory) + threadIdx.x;  // each thread has its own
      const float4* from = parts + int64_t(other) * PARTS * THREADS + threadIdx.x;
#pragma unroll
      for (int begun = 0; begun < PARTS; begun += HALF) {
#pragma unroll
        for (int i = 0; i < HALF; ++i) {
          copy<16>(&staged[i * THREADS].x, &from[(begun + i) * THREADS].x, true);
        }
        wait_for_all_copies();
#pragma unroll
        for (int i = 0; i < HALF; ++i) {
          float part[4];
          fetch(part, &staged[i * THREADS].x);
#pragma unroll
          for (int c = 0; c < 4; ++c) sum[(begun + i) / SQUARES_N][(begun + i) % SQUARES_N * 4 + c] += part[c];
        }
      }
    }
    const int64_t top = int64_t(piece.tile / tiles_n) * TILE_M, left = int64_t(piece.tile % tiles_n) * TILE_N;
#pragma unroll
    for (int r = 0; r < 4 * SQUARES_M; ++r) {
      const int64_t row = top + y + r / 4 * 32 + r % 4;
#pragma unroll
      for (int c = 0; c < 4 * SQUARES_N; c += whole ? 4 : 1) {
        const int64_t column = left + x + c / 4 * 16 + c % 4;
        if constexpr (whole) {
          *reinterpret_cast<float4*>(out + row * n + column) = {sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]};
        } else {
          if (row < m && column < n) out[row * n + column] = sum[r][c];
        }
      }
    }
  }
  wait_for_all_copies();  // of the depth that nobody multiplies
}

template <bool whole>
int launch(const float* a, const float* b, float* out, float4* parts, int* done, int64_t blocks, int64_t m, int64_t n,
           int64_t k, cudaStream_t stream) {
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(product<whole>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  product<whole><<<blocks, THREADS, BYTES, stream>>>(a, b, out, parts, done, m, n, k);
  return cudaGetLastError();
}

// `parts` has room for a tile of each block, `done` is zero, and is so again afterwards. No more blocks than run at a time.
extern "C" int sgemm(const float* a, const float* b, float* out, float* parts, int32_t* done, int64_t blocks,
                     int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  const bool whole = m % TILE_M == 0 && n % TILE_N == 0 && k % DEPTH == 0;
  const auto run = whole ? launch<true> : launch<false>;
  return run(a, b, out, reinterpret_cast<float4*>(parts), done, blocks, m, n, k, stream);
}
