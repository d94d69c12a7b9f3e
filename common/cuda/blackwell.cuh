// Blackwell's tensor cores in C++: products whose operands lie in shared memory and whose sums stay in tensor memory.
//
// Each function is one instruction (PTX ISA 9.0, "tcgen05"), for sm_100a and sm_103a. Tiles in shared memory have the
// form that tma.cuh describes. `blocks` is the same in all of a kernel: 1, or 2 for clusters of two blocks as a pair.
#pragma once
#include "tma.cuh"

// As for wgmma, swizzle and distances included, but for the constant that tcgen05 wants from bit 46 on.
__device__ inline uint64_t operand(const bf16* tile) { return descriptor(tile) | uint64_t(1) << 46; }

// A whole warp takes columns of tensor memory, whose place it writes to `place`, and must give them back. In a pair a
// warp of each block does, with the same number, and one may wait for the other.
template <int columns, int blocks = 1>
__device__ inline void take_columns(uint32_t* place) {
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(place)),
               "n"(columns), "n"(blocks)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(blocks));
}

template <int columns, int blocks = 1>
__device__ inline void give_columns(uint32_t place) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(place), "n"(columns), "n"(blocks));
}

// Products of bf16 by one thread, 16 columns deep: sums += a b^T, or sums = a b^T unless `add`. `kind` is the
// instruction descriptor, which says how many rows and columns. In a pair one thread of block 0 starts them for both:
// each block has at these places half the rows of a and of b, and gets the sums of its own rows of a.
template <int blocks = 1>
__device__ inline void multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t kind, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %4, 0;\n"
      "tcgen05.mma.cta_group::%5.kind::f16 [%0], %1, %2, %3, add;\n}" ::"r"(sums),
      "l"(a), "l"(b), "r"(kind), "r"(uint32_t(add)), "n"(blocks)
      : "memory");
}

// Has the barrier arrived at once all products that this thread has started are done.
__device__ inline void arrive_after_products(Barrier* barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}

// The same in a pair, at the barrier in this place of both blocks.
__device__ inline void arrive_in_pair_after_products(Barrier* barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
          shared_address(barrier)),
      "h"(uint16_t(0b11))
      : "memory");
}

// load_box() by either block of a pair into its own tile, whose bytes land at the barrier in this place of block 0.
__device__ inline void load_box_in_pair(void* tile, const CUtensorMap* map, int column, int row, Barrier* barrier) {
  asm volatile(
      "{\n.reg .b32 landed;\n"
      "mapa.shared::cluster.u32 landed, %4, 0;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2"
      " [%0], [%1, {%2, %3}], [landed];\n}" ::"r"(shared_address(tile)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

// Tensor memory is ordered by barriers only between these two.
__device__ inline void before_barrier() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ inline void after_barrier() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// A warp reads its 32 lanes, which are the quarter of its number modulo 4: each thread 32 columns of its own row.
__device__ inline void load_sums(uint32_t (&sum)[32], uint32_t place) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\n"
      "tcgen05.wait::ld.sync.aligned;"
      : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3]), "=r"(sum[4]), "=r"(sum[5]), "=r"(sum[6]),
        "=r"(sum[7]), "=r"(sum[8]), "=r"(sum[9]), "=r"(sum[10]), "=r"(sum[11]), "=r"(sum[12]), "=r"(sum[13]),
        "=r"(sum[14]), "=r"(sum[15]), "=r"(sum[16]), "=r"(sum[17]), "=r"(sum[18]), "=r"(sum[19]), "=r"(sum[20]),
        "=r"(sum[21]), "=r"(sum[22]), "=r"(sum[23]), "=r"(sum[24]), "=r"(sum[25]), "=r"(sum[26]), "=r"(sum[27]),
        "=r"(sum[28]), "=r"(sum[29]), "=r"(sum[30]), "=r"(sum[31])
      : "r"(place)
      : "memory");
}
