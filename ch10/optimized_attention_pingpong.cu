// Tiles have 176 keys, so the same keys take fewer turns and barriers.
// targets: sm_90a (wgmma exists on Hopper alone)
#include "special.cuh"
#include "wgmma.cuh"

constexpr int WIDTH = 128, QUERIES = 128, KEYS = 176;  // of a head, and of tiles, in two halves of 64 columns
constexpr int SCORES = KEYS / 2;                       // of a thread
constexpr int CONSUMERS = 2;                           // warpgroups, 64 queries each
constexpr int THREADS = 3 * GROUP_THREADS;             // and one that copies
constexpr int STAGES = 2;

struct Shared {
  bf16 q[2][QUERIES * ROW];
  bf16 k[STAGES][2][KEYS * ROW], v[STAGES][2][KEYS * ROW];
  Barrier queries, full_k[STAGES], full_v[STAGES], empty_k[STAGES], empty_v[STAGES];
};

#define EIGHT(i)                                                                                        \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]), "+f"(sum[i + 5]), \
      "+f"(sum[i + 6]), "+f"(sum[i + 7])

// a and b of bf16 in shared memory, 16 columns deep: 64 x 176 sums.
__device__ void multiply_wide(float (&sum)[SCORES], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
      "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "
      "%57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, "
      "%79, %80, %81, %82, %83, %84, %85, %86, %87}, %88, %89, 1, 1, 1, 0, 0;"
      : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56), EIGHT(64), EIGHT(72),
        EIGHT(80)
      : "l"(a), "l"(b));
}

// As multiply_row of wgmma.cuh: one tile's row of 64 elements.
__device__ void multiply_row_wide(float (&sum)[SCORES], const bf16* a, const bf16* b) {
  const uint64_t rows = descriptor(a), columns = descriptor(b);
  hold(sum);
  fence_products();
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) multiply_wide(sum, rows + 2 * k, columns + 2 * k);
  commit_products();
  hold(sum);
}

// Begins the product of 64 queries of a warpgroup with KEYS keys.
__device__ void start_scores(float (&score)[SCORES], const bf16 (&q)[2][QUERIES * ROW], const bf16 (&k)[2][KEYS * ROW],
                             int group) {
#pragma unroll
  for (int i = 0; i < SCORES; ++i) score[i] = 0.0f;
  multiply_row_wide(score, q[0] + group * 64 * ROW, k[0]);
  multiply_row_wide(score, q[1] + group * 64 * ROW, k[1]);
}

// Begins that of weights with KEYS values. Of 16 keys a descriptor says where the last eight are, 1024 bytes on, and
// where the other half of the width is: a tile further. The next 16 keys are 2048 bytes on.
__device__ void start_sums(float (&sum)[64], const uint32_t (&weights)[SCORES / 2], const bf16 (&v)[2][KEYS * ROW]) {
  const uint64_t rows = descriptor(v[0]) + (uint64_t(sizeof(v[0]) / 16 - 1) << 16);
  hold(sum);
  fence_products();
#pragma unroll
  for (int step = 0; step < KEYS / 16; ++step) multiply_held(sum, weights + 4 * step, rows + 128 * step);
  commit_products();
  hold(sum);
}

// Scores become weights, on the scale of the largest so far; `shrink` is by how much that has made older ones smaller.
// A thread has two rows, which three others share; `left` keys count.
__device__ void weigh(float (&score)[SCORES], float (&peak)[2], float (&total)[2], float (&shrink)[2], float scale,
                      int left) {
  const int column = threadIdx.x % 4 * 2;
  if (left < KEYS) {
#pragma unroll
    for (int i = 0; i < SCORES; ++i) {
      if (i / 4 * 8 + column + i % 2 >= left) score[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float top = peak[row];
#pragma unroll
    for (int i = 0; i < SCORES / 2; ++i) top = fmaxf(top, score[i / 2 * 4 + 2 * row + i % 2]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    shrink[row] = exp2_special((peak[row] - top) * scale);
    peak[row] = top;
    total[row] *= shrink[row];
#pragma unroll
    for (int i = 0; i < SCORES / 2; ++i) {
      float& one = score[i / 2 * 4 + 2 * row + i % 2];
      one = exp2_special(one * scale - top * scale);
      total[row] += one;
    }
  }
}

// Weights as a product's left operand: a thread's parts of both are the same numbers in the same order.
__device__ void pack(uint32_t (&weights)[SCORES / 2], const float (&score)[SCORES]) {
#pragma unroll
  for (int i = 0; i < SCORES / 2; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(score[2 * i], score[2 * i + 1]);
    weights[i] = reinterpret_cast<const uint32_t&>(pair);
  }
}

__device__ void multiply_rows(float (&sum)[64], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) sum[i] *= factor[i / 2 % 2];
}

// Divides by the weights' total, of which each of four threads has a part.
__device__ void finish(float (&sum)[64], const float (&total)[2]) {
  float factor[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const float half = total[row] + __shfl_xor_sync(~0u, total[row], 1);
    factor[row] = 1.0f / (half + __shfl_xor_sync(~0u, half, 2));
  }
  multiply_rows(sum, factor);
}

template <int rows>
__device__ void load_rows(bf16 (&tile)[2][rows * ROW], const CUtensorMap& map, int row, Barrier* barrier) {
  load_box(tile[0], &map, 0, row, barrier);
  load_box(tile[1], &map, ROW, row, barrier);
}

// A turn is a barrier of all 256 threads that multiply: 128 wait for it, and the other 128 only arrive.
__device__ void take_turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); }
__device__ void give_turn(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(1 + group) : "memory"); }

__device__ void produce(Shared& shared, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v, int first,
                        int head, int tiles) {
  arrive_and_expect(&shared.queries, sizeof(shared.q));
  load_rows<QUERIES>(shared.q, q, head + first, &shared.queries);
  for (int i = 0; i < tiles; ++i) {
    const int stage = i % STAGES, round = i / STAGES;
    wait(&shared.empty_k[stage], (round + 1) % 2);  // in the first round there is nothing to wait for
    arrive_and_expect(&shared.full_k[stage], sizeof(shared.k[0]));
    load_rows<KEYS>(shared.k[stage], k, head + i * KEYS, &shared.full_k[stage]);
    wait(&shared.empty_v[stage], (round + 1) % 2);
    arrive_and_expect(&shared.full_v[stage], sizeof(shared.v[0]));
    load_rows<KEYS>(shared.v[stage], v, head + i * KEYS, &shared.full_v[stage]);
  }
}

__device__ void consume(Shared& shared, float (&sum)[64], float (&total)[2], int group, int tokens, float scale) {
  const int tiles = ceil_div(tokens, KEYS);
  float score[SCORES], peak[2] = {-INFINITY, -INFINITY}, shrink[2];
  uint32_t weights[SCORES / 2];
  const auto release = [](Barrier* barrier) {
    if (threadIdx.x % 32 == 0) arrive(barrier);
  };
  if (group == 1) give_turn(0);  // the first
  wait(&shared.queries, 0);
  wait(&shared.full_k[0], 0);
  take_turn(group);
  start_scores(score, shared.q, shared.k[0], group);
  if (group == 0 || tiles > 1) give_turn(1 - group);
  finish_products(score);
  release(&shared.empty_k[0]);
  weigh(score, peak, total, shrink, scale, tokens);
  pack(weights, score);
  for (int i = 1; i < tiles; ++i) {
    const int stage = i % STAGES, before = (i - 1) % STAGES;
    wait(&shared.full_k[stage], i / STAGES % 2);
    wait(&shared.full_v[before], (i - 1) / STAGES % 2);
    take_turn(group);
    start_scores(score, shared.q, shared.k[stage], group);
    start_sums(sum, weights, shared.v[before]);  // of the tile before: they run while this one's scores are weighed
    if (group == 0 || i + 1 < tiles) give_turn(1 - group);
    wait_for_products<1>();
    hold(score);
    release(&shared.empty_k[stage]);
    weigh(score, peak, total, shrink, scale, tokens - i * KEYS);
    hold(score);
    // This loop, which ends at once, keeps the compiler from moving the wait for the sums to before the weights.
    wait(&shared.full_v[before], (i - 1) / STAGES % 2);
    finish_products(sum);
#pragma unroll
    for (uint32_t& pair : weights) asm volatile("" : "+r"(pair));  // products have read them until now
    release(&shared.empty_v[before]);
    multiply_rows(sum, shrink);
    pack(weights, score);
  }
  const int last = tiles - 1;
  wait(&shared.full_v[last % STAGES], last / STAGES % 2);
  start_sums(sum, weights, shared.v[last % STAGES]);
  finish_products(sum);
}

__global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
              const __grid_constant__ CUtensorMap v, bf16* __restrict__ out, int tokens, float scale) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int first = blockIdx.x * QUERIES, head = blockIdx.y * tokens;
  if (threadIdx.x == 0) {
    init(&shared.queries, 1);
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&shared.full_k[stage], 1);
      init(&shared.full_v[stage], 1);
      init(&shared.empty_k[stage], CONSUMERS * GROUP_THREADS / 32);  // a warp arrives once
      init(&shared.empty_v[stage], CONSUMERS * GROUP_THREADS / 32);
    }
    publish_barriers();
  }
  __syncthreads();

  const int group = group_of_thread();
  // 168 registers a thread were given out: the warpgroup that copies hands most of its own to the others.
  if (group == CONSUMERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == CONSUMERS * GROUP_THREADS) produce(shared, q, k, v, first, head, ceil_div(tokens, KEYS));
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    float sum[64] = {}, total[2] = {};
    consume(shared, sum, total, group, tokens, scale);
    finish(sum, total);
    store_sums(sum, out + int64_t(head) * WIDTH, first + group * 64, 0, tokens, WIDTH);
  }
}

extern "C" int attend(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* out,
                      int64_t heads, int64_t tokens, cudaStream_t stream) {
  CUtensorMap maps[3];
  const bf16* sides[3] = {q, k, v};
  for (int i = 0; i < 3; ++i) {
    TRY(describe(&maps[i], sides[i], heads * tokens, WIDTH, i == 0 ? QUERIES : KEYS));
  }
  constexpr int BYTES = sizeof(Shared);
  TRY(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const float scale = 1.44269504f / sqrtf(float(WIDTH));  // weights are powers of 2
  const dim3 grid(ceil_div(tokens, QUERIES), heads);
  attention<<<grid, THREADS, BYTES, stream>>>(maps[0], maps[1], maps[2], out, int(tokens), scale);
  return cudaGetLastError();
}
