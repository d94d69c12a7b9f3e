// The pages of the greatest bounds of a request's head: two bits of the least of them are found with each barrier.
#include "kernel.cuh"

constexpr int THREADS = 1024;

// Integers in the order of the floats: the bits of a negative one count the other way.
__device__ unsigned ranked(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A block for a head of a request; a thread holds EACH neighbouring pages. `lists` are in the order of the pages.
template <int EACH>
__global__ void __launch_bounds__(THREADS) choose(const float* __restrict__ bounds, const int* __restrict__ table,
                                                  int* __restrict__ lists, int heads, int pages, int kept) {
  __shared__ unsigned long long reached[16];  // by three trials, 21 bits each
  __shared__ int before[THREADS / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = threadIdx.x * EACH;
  bounds += int64_t(blockIdx.x) * pages, lists += int64_t(blockIdx.x) * kept;
  table += int64_t(blockIdx.x / heads) * pages;
  unsigned rank[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) rank[i] = first + i < pages ? ranked(bounds[first + i]) : 0;
  if (threadIdx.x < 16) reached[threadIdx.x] = 0;
  __syncthreads();
  unsigned least = 0;  // the greatest number that at least `kept` ranks reach
  for (int turn = 0; turn < 16; ++turn) {
    const int shift = 30 - 2 * turn;
    unsigned counts = 0;  // three of 10 bits, of a warp: at most 32 EACH
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
      for (unsigned digit = 1; digit < 4; ++digit) {
        counts += unsigned(rank[i] >= (least | digit << shift)) << 10 * (digit - 1);
      }
    }
    counts = __reduce_add_sync(0xffffffff, counts);
    if (lane == 0 && counts) {
      const unsigned long long apart = counts & 0x3FFu | (unsigned long long)(counts >> 10 & 0x3FFu) << 21 |
                                       (unsigned long long)(counts >> 20) << 42;
      atomicAdd(&reached[turn], apart);
    }
    __syncthreads();
    const unsigned long long all = reached[turn];
    const unsigned mask = (1u << 21) - 1;
    const int one = all & mask, two = all >> 21 & mask, three = all >> 42;
    const unsigned digit = three >= kept ? 3 : two >= kept ? 2 : one >= kept ? 1 : 0;
    least |= digit << shift;
    if (digit == 3 ? three == kept : digit == 2 ? two == kept : digit == 1 && one == kept) break;
  }
  // Those above `least` are all kept, and of its equals the first ones. After a break all that reach it are kept.
  int greater = 0, equal = 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i) greater += rank[i] > least, equal += rank[i] == least && first + i < pages;
  int own = greater | equal << 16, scanned = own;  // both in one scan
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffff, scanned, step);
    if (lane >= step) scanned += other;
  }
  if (lane == 31) before[warp] = scanned;
  __syncthreads();
  int total = 0, start = 0;
  for (int w = 0; w < THREADS / 32; ++w) {
    if (w == warp) start = total;
    total += before[w];
  }
  start += scanned - own;
  const int spare = kept - (total & 0xFFFF);
  int above = start & 0xFFFF, equals = start >> 16;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if (first + i >= pages) continue;
    const bool is_equal = rank[i] == least;
    if (rank[i] > least || (is_equal && equals < spare)) lists[above + min(equals, spare)] = table[first + i];
    above += rank[i] > least, equals += is_equal;
  }
}

// bounds [requests, heads, pages], table [requests, pages], lists [requests, heads, kept].
extern "C" int choose_pages(const float* bounds, const int* table, int* lists, int requests, int heads, int pages,
                            int kept, cudaStream_t stream) {
  if (kept < 1 || kept > pages || pages > 8 * THREADS) return cudaErrorInvalidValue;
  const int blocks = requests * heads;
  if (pages <= THREADS) {
    choose<1><<<blocks, THREADS, 0, stream>>>(bounds, table, lists, heads, pages, kept);
  } else if (pages <= 4 * THREADS) {
    choose<4><<<blocks, THREADS, 0, stream>>>(bounds, table, lists, heads, pages, kept);
  } else {
    choose<8><<<blocks, THREADS, 0, stream>>>(bounds, table, lists, heads, pages, kept);
  }
  return cudaGetLastError();
}
