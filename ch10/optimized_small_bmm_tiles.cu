// Products of 16 x 16 matrices: each warp has a ring of six places of four pairs, which TMA fills and empties in long runs.
// targets: sm_90a, sm_100a, sm_103a (bulk copies, and 192 KiB of shared memory a block)
#include <type_traits>

#include "ampere.cuh"
#include "tma.cuh"

constexpr int SIDE = 16, AREA = SIDE * SIDE;  // of a matrix
constexpr int PRODUCTS = 4;                   // that a warp computes in one turn
constexpr int STAGES = 6;                     // of a warp's ring
constexpr int WARPS = 8;                      // a block, and one block a multiprocessor
constexpr int THREADS = 32 * WARPS;

template <typename Element>
struct Place {
  Element a[PRODUCTS * AREA];  // and later the products
  Element b[PRODUCTS * AREA];
};

template <typename Element>
struct Shared {
  Place<Element> places[WARPS][STAGES];
  Barrier full[WARPS][STAGES];
};

// As load_matrices, but each matrix is transposed on its way.
__device__ inline void load_transposed(uint32_t* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void store_matrices(void* row, const uint32_t (&pair)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
               : "memory");
}

template <typename Element>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<Element, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// A warp puts the product of two matrices in place of the first one.
template <typename Element>
__device__ inline void multiply_pair(Element* a, const Element* b) {
  const int lane = threadIdx.x % 32, at = lane % 16 * SIDE + lane / 16 * 8;  // a row of one of four 8 x 8 matrices
  uint32_t left[4], right[4], pairs[4];
  load_matrices(left, a + at);
  load_transposed(right, b + at);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum[4] = {};
    if constexpr (std::is_same_v<Element, __half>) {
      multiply_half(sum, left, right[2 * half], right[2 * half + 1]);
    } else {
      multiply(sum, left, right[2 * half], right[2 * half + 1]);
    }
    pairs[2 * half] = pack<Element>(sum[0], sum[1]);
    pairs[2 * half + 1] = pack<Element>(sum[2], sum[3]);
  }
  store_matrices(a + at, pairs);
}

// Each warp works by itself: its first lane starts all copies of its ring.
template <typename Element>
__global__ void __launch_bounds__(THREADS, 1)
    multiply_small(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ out,
                   int64_t count) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared<Element>& shared = *reinterpret_cast<Shared<Element>*>(memory);
  const int warp = threadIdx.x / 32;
  Place<Element>* const ring = shared.places[warp];
  Barrier* const full = shared.full[warp];
  const bool first = threadIdx.x % 32 == 0;
  const int64_t own = int64_t(blockIdx.x) * WARPS + warp, warps = int64_t(gridDim.x) * WARPS;
  const auto begin_of = [&](int turn) { return (own + turn * warps) * PRODUCTS; };
  const auto bytes_of = [&](int64_t begin) {
    return uint32_t(min(int64_t(PRODUCTS), count - begin) * AREA * sizeof(Element));
  };
  const auto fetch = [&](int turn) {
    const int64_t begin = begin_of(turn);
    if (begin >= count) return;
    Place<Element>& place = ring[turn % STAGES];
    const uint32_t bytes = bytes_of(begin);
    arrive_and_expect(&full[turn % STAGES], 2 * bytes);
    load_row(place.a, a + begin * AREA, bytes, &full[turn % STAGES]);
    load_row(place.b, b + begin * AREA, bytes, &full[turn % STAGES]);
  };
  if (first) {
    for (int stage = 0; stage < STAGES; ++stage) init(&full[stage], 1);
    publish_barriers();
    for (int turn = 0; turn < STAGES; ++turn) fetch(turn);
  }
  __syncwarp();
  for (int turn = 0; begin_of(turn) < count; ++turn) {
    Place<Element>& place = ring[turn % STAGES];
    wait(&full[turn % STAGES], turn / STAGES % 2);
#pragma unroll
    for (int p = 0; p < PRODUCTS; ++p) multiply_pair(place.a + p * AREA, place.b + p * AREA);
    publish_tile();  // the products may be copied out, and what has been read may be written over
    __syncwarp();
    if (first) {
      const int64_t begin = begin_of(turn);
      store_row(out + begin * AREA, place.a, bytes_of(begin));
      commit_stores();
      if (turn > 0) {
        wait_for_stores<1>();  // those of the turn before have left their place
        fetch(turn - 1 + STAGES);
      }
    }
    __syncwarp();
  }
  if (first) wait_for_stores<0>();  // shared memory must outlast them
}

template <typename Element>
int launch(const Element* a, const Element* b, Element* out, int64_t count, cudaStream_t stream) {
  constexpr int BYTES = sizeof(Shared<Element>);
  TRY(cudaFuncSetAttribute(multiply_small<Element>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  int resident = 0;
  TRY(count_resident(&resident, multiply_small<Element>, THREADS, BYTES));
  const int64_t blocks = ceil_div(count, WARPS * PRODUCTS);
  multiply_small<Element><<<blocks < resident ? blocks : resident, THREADS, BYTES, stream>>>(a, b, out, count);
  return cudaGetLastError();
}

extern "C" int multiply_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t count,
                             cudaStream_t stream) {
  return launch(a, b, out, count, stream);
}

extern "C" int multiply_fp16(const __half* a, const __half* b, __half* out, int64_t count, cudaStream_t stream) {
  return launch(a, b, out, count, stream);
}
