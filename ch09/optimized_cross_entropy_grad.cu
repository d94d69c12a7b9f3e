// Cross entropy and its gradient in one pass: the blocks of a cluster hold a row's logits in shared memory while they
// find its maximum and its sum.
// targets: sm_90a, sm_100a, sm_103a, sm_120a, sm_121a (clusters)
#include "ampere.cuh"
#include "cluster.cuh"
#include "special.cuh"

constexpr int THREADS = 192;
constexpr int WARPS = THREADS / 32;
constexpr int CLUSTER = 8;  // blocks of a row
constexpr int PIECES = 11;  // of eight neighbouring logits, in each thread
#if __CUDA_ARCH__ >= 1000
constexpr int RESIDENT = 5;  // blocks of a multiprocessor: with 56 registers a thread, Blackwell's compiler spills
#else
constexpr int RESIDENT = 6;
#endif
constexpr int MOST = 8 * PIECES * THREADS * CLUSTER;  // logits of a row
constexpr uint32_t LOWEST_TWO = 0xfbfffbff;  // -65504 twice: finite, so that two of them may be subtracted
constexpr float LOG2E = 1.44269504f, LN2 = 0.69314718f;

// A maximum, and the sum of exp2(LOG2E * (logit - maximum)).
struct Part {
  float peak, total;
};

__device__ Part join(Part a, Part b) {
  const float peak = fmaxf(a.peak, b.peak);
  return {peak, a.total * exp2_special(LOG2E * (a.peak - peak)) + b.total * exp2_special(LOG2E * (b.peak - peak))};
}

// The same in every lane of a warp.
__device__ Part join_lanes(Part part) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    part = join(part, {__shfl_xor_sync(~0u, part.peak, apart), __shfl_xor_sync(~0u, part.total, apart)});
  }
  return part;
}

struct Piece {
  __half2 pair[4];
};

__device__ Piece piece_of(uint4 words) { return reinterpret_cast<const Piece&>(words); }

// `aligned`: a row has a multiple of eight logits, so a piece is whole and one access of 16 bytes.
template <bool aligned>
__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, RESIDENT)
    loss_and_gradient(__half* logits, const int64_t* __restrict__ targets, float* loss, int vocabulary) {
  extern __shared__ uint4 memory[];
  auto* staged = memory + threadIdx.x;  // every THREADS-th is this thread's own
  __shared__ Part of_warps[WARPS];
  __shared__ float2 of_blocks[CLUSTER];
  __shared__ Barrier handed;
  if (threadIdx.x == 0) {
    init(&handed, 1);
    publish_barriers();
    arrive_and_expect(&handed, CLUSTER * sizeof(float2));
  }
  __syncthreads();
  arrive_at_cluster();  // this block has begun: others may write to its shared memory
  const int rank = cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t token = blockIdx.x / CLUSTER;
  const int target = targets[token], pieces = (vocabulary + 7) / 8, share = (pieces + CLUSTER - 1) / CLUSTER;
  const int first = rank * share + threadIdx.x, count = min(rank * share + share, pieces) - first;  // of this thread
  __half* row = logits + token * vocabulary;
  auto* places = reinterpret_cast<uint4*>(row) + first;

  const int hit_at = target / 8 - first;
  const bool has_hit = hit_at >= 0 && hit_at < count && hit_at % THREADS == 0;  // one thread of the cluster
  const float hit = has_hit ? __half2float(row[target]) : 0.0f;

  if constexpr (aligned) {
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int at = p * THREADS;
      if (at < count) {
        copy_async<16>(staged + at, places + at);
      } else {
        staged[at] = {LOWEST_TWO, LOWEST_TWO, LOWEST_TWO, LOWEST_TWO};
      }
    }
  } else {
#pragma unroll 1
    for (int at = 0; at < PIECES * THREADS; at += THREADS) {
      auto* place = reinterpret_cast<__half*>(staged + at);
#pragma unroll 1
      for (int i = 0; i < 8; ++i) {
        const int word = 8 * (first + at) + i;
        place[i] = at < count && word < vocabulary ? row[word] : __ushort_as_half(uint16_t(LOWEST_TWO));
      }
    }
  }
  wait_for_all_copies();

  __half2 highest = __half2half2(__ushort_as_half(uint16_t(LOWEST_TWO)));
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const Piece piece = piece_of(staged[p * THREADS]);
#pragma unroll
    for (int i = 0; i < 4; ++i) highest = __hmax2(highest, piece.pair[i]);
  }
  Part part = {fmaxf(__low2float(highest), __high2float(highest)), 0.0f};
  const float own_shift = -LOG2E * part.peak;
  asm volatile("" ::: "memory");  // read them again: registers are for what is on its way
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const Piece piece = piece_of(staged[p * THREADS]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 value = __half22float2(piece.pair[i]);
      part.total += exp2_special(fmaf(LOG2E, value.x, own_shift)) + exp2_special(fmaf(LOG2E, value.y, own_shift));
    }
  }
  part = join_lanes(part);
  if (lane == 0) of_warps[warp] = part;
  __syncthreads();
  if (warp == 0) {
    if (lane >= WARPS) part.total = 0.0f;
    if (lane < WARPS) part = of_warps[lane];
    part = join_lanes(part);
  }
  wait_for_cluster();
  if (threadIdx.x < CLUSTER) store_at(of_blocks + rank, &handed, threadIdx.x, {part.peak, part.total});
  wait(&handed, 0);
  part = {of_blocks[0].x, of_blocks[0].y};
#pragma unroll
  for (int block = 1; block < CLUSTER; ++block) part = join(part, {of_blocks[block].x, of_blocks[block].y});

  const float logarithm = log2f(part.total), shift = -LOG2E * part.peak - logarithm;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int at = p * THREADS;
    if (at >= count) break;
    const Piece piece = piece_of(staged[at]);
    Piece slopes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 value = __half22float2(piece.pair[i]);
      slopes.pair[i] = __floats2half2_rn(exp2_special(fmaf(LOG2E, value.x, shift)),
                                         exp2_special(fmaf(LOG2E, value.y, shift)));
    }
    const auto words = reinterpret_cast<const uint4&>(slopes);
    if constexpr (aligned) {
      __stcs(places + at, words);
    } else {
      staged[at] = words;
      const auto* slope = reinterpret_cast<const __half*>(staged + at);
#pragma unroll 1
      for (int i = 0; i < 8 && 8 * (first + at) + i < vocabulary; ++i) row[8 * (first + at) + i] = slope[i];
    }
  }
  if (has_hit) {
    row[target] = __float2half(exp2_special(fmaf(LOG2E, hit, shift)) - 1.0f);
    atomicAdd(loss, part.peak + LN2 * logarithm - hit);
  }
}

// The gradient takes the place of logits [tokens, vocabulary]; loss is the sum over tokens.
extern "C" int cross_entropy(__half* logits, const int64_t* targets, float* loss, int64_t tokens, int64_t vocabulary,
                             cudaStream_t stream) {
  if (vocabulary > MOST) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(loss, 0, sizeof(float), stream));
  const auto kernel = vocabulary % 8 ? loss_and_gradient<false> : loss_and_gradient<true>;
  constexpr int BYTES = PIECES * THREADS * sizeof(uint4);
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  kernel<<<tokens * CLUSTER, THREADS, BYTES, stream>>>(logits, targets, loss, int(vocabulary));
  return cudaGetLastError();
}
