// Greedy decoding whose text is made by the launching thread, which waits for each step before it launches the next.
#include "kernel.cuh"
#include <string.h>

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int PIECE = 16;  // bytes of a token
constexpr int STOP = 4;    // bytes of the stop word

// Larger for larger values, and of equal ones for the first.
__device__ unsigned long long rank_of(float value, uint32_t index) {
  const uint32_t bits = __float_as_uint(value);
  return static_cast<unsigned long long>(bits >> 31 ? ~bits : bits | 1u << 31) << 32 | ~index;
}

// A block for each row takes the largest logit; the token before it, if there is one, loses 1.
__global__ void __launch_bounds__(THREADS)
    choose(const half* __restrict__ logits, const int* before, int* ids, int* seen, int vocabulary) {
  const half* row = logits + int64_t(blockIdx.x) * vocabulary;
  const int banned = before ? before[blockIdx.x] : -1;
  float most = -INFINITY;
  int at = vocabulary;
  auto consider = [&](half logit, int index) {
    const float value = __half2float(logit) - (index == banned ? 1.0f : 0.0f);
    if (value > most) most = value, at = index;  // indices rise: of equal ones the first stays
  };
  const int whole = vocabulary % 8 ? 0 : vocabulary / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < whole; i += THREADS) {
    const uint4 piece = reinterpret_cast<const uint4*>(row)[i];
    const uint32_t words[] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int k = 0; k < 8; ++k) consider(__ushort_as_half(words[k / 2] >> k % 2 * 16 & 0xffff), 8 * i + k);
  }
  for (int i = 8 * whole + threadIdx.x; i < vocabulary; i += THREADS) consider(row[i], i);

  __shared__ unsigned long long ranks[WARPS];
  unsigned long long best = rank_of(most, at);
#pragma unroll
  for (int half_of = 16; half_of > 0; half_of /= 2) best = max(best, __shfl_xor_sync(~0u, best, half_of));
  if (threadIdx.x % 32 == 0) ranks[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x) return;
  for (int warp = 1; warp < WARPS; ++warp) best = max(best, ranks[warp]);
  ids[blockIdx.x] = seen[blockIdx.x] = ~static_cast<uint32_t>(best);  // `seen` is the host's: no copy follows
}

struct Batch {
  const int* ids;
  const uint8_t *pieces, *stop;
  uint8_t* text;  // [rows, steps, PIECE]
  int* found;     // stop words in a row so far
  int64_t rows, step, steps;
};

// On the CPU: each row's new piece behind its text, and the stop words that end in it.
static void detokenize(const Batch& batch) {
  for (int64_t row = 0; row < batch.rows; ++row) {
    uint8_t *text = batch.text + row * batch.steps * PIECE, *end = text + (batch.step + 1) * PIECE;
    memcpy(end - PIECE, batch.pieces + int64_t(batch.ids[row]) * PIECE, PIECE);
    int found = batch.step ? batch.found[row] : 0;
    for (const uint8_t* at = batch.step ? end - PIECE - STOP + 1 : text; at + STOP <= end; ++at) {
      found += memcmp(at, batch.stop, STOP) == 0;
    }
    batch.found[row] = found;
  }
}

// logits [steps, rows, vocabulary], ids [steps, rows] on the GPU; the others are page-locked, `seen` as large as `ids`.
extern "C" int generate(const half* logits, const uint8_t* pieces, const uint8_t* stop, int* ids, int* seen,
                        uint8_t* text, int* found, int64_t steps, int64_t rows, int vocabulary, cudaStream_t stream) {
  for (int64_t t = 0; t < steps; ++t) {
    int *chosen = ids + t * rows, *here = seen + t * rows;
    choose<<<rows, THREADS, 0, stream>>>(logits + t * rows * vocabulary, t ? chosen - rows : nullptr, chosen,
                                         here, vocabulary);
    TRY(cudaStreamSynchronize(stream));
    detokenize({here, pieces, stop, text, found, rows, t, steps});
  }
  return cudaGetLastError();
}
