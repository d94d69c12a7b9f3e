// The greatest numbers of each row: a sample's guess at the least of them, one read that collects what reaches it.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int BLOCKS = 4;     // of a multiprocessor
constexpr int ROOM = 6144;    // numbers that a block can collect: 48 KB with their places
constexpr int SAMPLES = 12;   // of a thread, neighbours; 3,072 of a row
constexpr int EACH = 8;       // numbers that a thread looks at between two additions to the counter
constexpr int SLOTS = 32;     // counters, each for one sum

// Integers in the order of the floats: the bits of a negative one count the other way.
__device__ unsigned ranked(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The sum of all threads' counts. `slot` was zero at the last barrier and is not used again before the next reset.
__device__ int block_sum(int count, int* slot) {
  count = __reduce_add_sync(0xffffffff, count);
  if (threadIdx.x % 32 == 0 && count) atomicAdd(slot, count);
  __syncthreads();
  return *slot;
}

__device__ void reset(int* slots) {
  __syncthreads();  // all have read them
  if (threadIdx.x < SLOTS) slots[threadIdx.x] = 0;
  __syncthreads();
}

// A threshold that exactly `wanted` of the block's ranks reach, or the greatest that more do, where some are equal. It
// is found bit by bit; of a thread's ranks count(t) reach t.
template <typename Count>
__device__ unsigned threshold(int wanted, int* slots, Count count) {
  reset(slots);
  unsigned low = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const unsigned trial = low | 1u << bit;
    const int reached = block_sum(count(trial), slots + bit);
    if (reached >= wanted) low = trial;
    if (reached == wanted) break;
  }
  return low;
}

// The ranks of a row that reach `low`, and their places, for as many as there is room. Returns how many reach it.
__device__ int collect(const float* row, int n, unsigned low, unsigned* ranks, int* places, int* slots) {
  reset(slots);
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < n; first += THREADS * EACH) {
    unsigned own[EACH], votes[EACH];
    int before = 0, total = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int place = first + i * THREADS + threadIdx.x;
      own[i] = place < n ? ranked(row[place]) : 0;
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      votes[i] = __ballot_sync(0xffffffff, own[i] >= low && first + i * THREADS + int(threadIdx.x) < n);
      total += __popc(votes[i]);
    }
    if (total == 0) continue;  // of the whole warp
    if (lane == 0) before = atomicAdd(slots, total);
    before = __shfl_sync(0xffffffff, before, 0);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int at = before + __popc(votes[i] & ((1u << lane) - 1));
      if (votes[i] >> lane & 1 && at < ROOM) {
        ranks[at] = own[i];
        places[at] = first + i * THREADS + threadIdx.x;
      }
      before += __popc(votes[i]);
    }
  }
  __syncthreads();
  return slots[0];
}

// A block for a row. A guess that too few or too many reach is halved between what is known of it, and the row is read
// again; where more numbers than there is room for are equal, those above are collected, and then any of the equal.
__global__ void __launch_bounds__(THREADS, BLOCKS) choose(const float* scores, int64_t* best, int n, int top) {
  extern __shared__ unsigned ranks[];
  __shared__ int slots[SLOTS];
  int* places = reinterpret_cast<int*>(ranks + ROOM);
  const float* row = scores + int64_t(blockIdx.x) * n;
  const int64_t name = int64_t(blockIdx.x) * n;
  best += int64_t(blockIdx.x) * top;
  unsigned sample[SAMPLES];
#pragma unroll
  for (int i = 0; i < SAMPLES; ++i) {
    sample[i] = ranked(row[min(int64_t(n - 1), threadIdx.x * int64_t(n) / THREADS + i)]);
  }
  // Twice as many as are wanted, so that by chance there are neither too few nor more than there is room for.
  const int64_t aim = 2 * int64_t(top) * SAMPLES * THREADS / n;
  unsigned guess = threshold(aim < 1 ? 1 : aim > SAMPLES * THREADS ? SAMPLES * THREADS : aim, slots, [&](unsigned t) {
    int reached = 0;
#pragma unroll
    for (int i = 0; i < SAMPLES; ++i) reached += sample[i] >= t;
    return reached;
  });
  unsigned low = 0, high = 0xffffffffu;  // at least `top` reach `low`, and fewer a rank above `high`
  int count = collect(row, n, guess, ranks, places, slots);
  while ((count < top || count > ROOM) && low < high) {
    if (count < top) high = guess - 1;
    if (count > ROOM) low = guess;
    guess = low + (high - low) / 2 + (high - low) % 2;
    count = collect(row, n, guess, ranks, places, slots);
  }
  if (count > ROOM) {  // guess == low == high: fewer than `top` are greater
    count = collect(row, n, guess + 1, ranks, places, slots);
    for (int i = threadIdx.x; i < count; i += THREADS) best[i] = name + places[i];
    __syncthreads();  // all know `count`
    for (int i = threadIdx.x; i < n; i += THREADS) {
      if (ranked(row[i]) != guess) continue;
      const int at = atomicAdd(slots, 1);  // which collect left at `count`
      if (at < top) best[at] = name + i;
    }
    return;
  }
  const unsigned least = threshold(top, slots, [&](unsigned t) {
    int reached = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) reached += ranks[i] >= t;
    return reached;
  });
  reset(slots);
  for (int i = threadIdx.x; i < count; i += THREADS) {
    if (ranks[i] > least) best[atomicAdd(slots, 1)] = name + places[i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += THREADS) {
    if (ranks[i] != least) continue;
    const int at = atomicAdd(slots, 1);
    if (at < top) best[at] = name + places[i];
  }
}

// scores [rows, n], best [rows, top]: row x n + place, in any order. n is at least `top`, and `top` at most ROOM.
extern "C" int select_top(const float* scores, int64_t* best, int rows, int n, int top, cudaStream_t stream) {
  if (n < top || top > ROOM || top < 1) return cudaErrorInvalidValue;
  constexpr int bytes = ROOM * (sizeof(unsigned) + sizeof(int));
  TRY(cudaFuncSetAttribute(choose, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  choose<<<rows, THREADS, bytes, stream>>>(scores, best, n, top);
  return cudaGetLastError();
}
