// TMA's copies in C++, the mbarriers that tell of their end, and the form of tiles that wgmma and tcgen05 read.
//
// Each function is one instruction (PTX ISA 9.0, "Asynchronous copy", "mbarrier") and runs from sm_90.
#pragma once
#include <cuda.h>
#include <stdio.h>

#include "kernel.cuh"

using Barrier = uint64_t;  // an mbarrier, in shared memory

// Barriers. Phase n of a barrier ends when `count` threads have arrived and all expected bytes have landed; then phase
// n + 1 begins. wait(barrier, parity) returns once the last phase of that parity has ended. On a fresh barrier, parity
// 0 waits for the first phase, and parity 1 returns at once.

__device__ inline void init(Barrier* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Makes new barriers known to TMA and to the other blocks of the cluster; a block or cluster barrier must follow.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}

__device__ inline void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and has the phase wait for `bytes` that copies will write.
__device__ inline void arrive_and_expect(Barrier* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

constexpr uint64_t LONGEST_WAIT = 10'000'000'000;  // nanoseconds, in debug builds

// In a debug build (nvcc -G) a wait that would never end tells who waits for what, and traps.
__device__ inline void wait(Barrier* barrier, uint32_t parity) {
#ifdef __CUDACC_DEBUG__
  uint64_t begun, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
#endif
  uint32_t ended;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#ifdef __CUDACC_DEBUG__
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (!ended && now - begun > LONGEST_WAIT) {
      printf("block %d, thread %d: the barrier at %#x did not end a phase of parity %u in 10 s\n", blockIdx.x,
             threadIdx.x, shared_address(barrier), parity);
      __trap();
    }
#endif
  } while (!ended);
}

// Copies by TMA, which one thread starts. `map` describes the tensor in memory, and `at` is where the box begins, the
// innermost dimension first; parts of a box beyond the tensor are read as zeros, which count as bytes that landed, and
// are not written.

template <int dimensions>
__device__ inline void load_box(void* tile, const CUtensorMap* map, const int (&at)[dimensions], Barrier* barrier) {
  const uint32_t to = shared_address(tile), landed = shared_address(barrier);
  if constexpr (dimensions == 1) {
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
                 ::"r"(to), "l"(map), "r"(landed), "r"(at[0])
                 : "memory");
  } else if constexpr (dimensions == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            to),
        "l"(map), "r"(landed), "r"(at[0]), "r"(at[1])
        : "memory");
  } else if constexpr (dimensions == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
        "l"(map), "r"(landed), "r"(at[0]), "r"(at[1]), "r"(at[2])
        : "memory");
  } else if constexpr (dimensions == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(map), "r"(landed), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
  } else {
    static_assert(dimensions == 5, "TMA copies boxes of one to five dimensions");
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
        "l"(map), "r"(landed), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
        : "memory");
  }
}
__device__ inline void load_box(void* tile, const CUtensorMap* map, int column, int row, Barrier* barrier) {
  load_box(tile, map, {column, row}, barrier);
}

__device__ inline void store_box(const CUtensorMap* map, int column, int row, const void* tile) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(column),
               "r"(row), "r"(shared_address(tile))
               : "memory");
}

// Copies without a map: `bytes` in a row, a multiple of 16, between places at multiples of 16.
__device__ inline void load_row(void* to, const void* from, uint32_t bytes, Barrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// The way back; belongs to the thread's group of stores.
__device__ inline void store_row(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}

// Adds a row of floats in shared memory to one in memory. Each number's addition is atomic, the row's is not. Belongs
// to the thread's group of stores.
__device__ inline void add_row(float* to, const float* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's groups of stores have still to read their tiles.
template <int pending>
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// What this thread wrote to shared memory may now be read by TMA and wgmma; needed before the barrier that tells them.
__device__ inline void publish_tile() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Tiles in shared memory that wgmma and tcgen05 read are rows of 64 bf16, which are 128 bytes, in the 128-byte swizzle:
// of the eight pieces of 16 bytes of row r, piece p stands at place p ^ (r % 8). Eight rows of one piece then lie in
// different banks. TMA writes and reads tiles in this form too. It repeats every 1024 bytes: tiles begin there.

constexpr int ROW = 64;  // elements of a tile's row

// Where piece `piece` of row `row` stands in a tile, in bytes.
__device__ inline int swizzled(int row, int piece) { return row * 128 + (piece ^ row % 8) * 16; }

// Tells wgmma or tcgen05 of a tile of rows of 64 elements whose first eight rows begin here: address, distance of 1024
// bytes to the next eight rows, 128-byte swizzle (the second field is not used with a swizzle). All in units of 16 bytes, so
// 16 elements further along the rows is 2 more.
__device__ inline uint64_t descriptor(const bf16* tile) {
  constexpr uint64_t FORM = uint64_t(1) << 62 | uint64_t(1024 / 16) << 32 | uint64_t(1) << 16;
  return FORM | (shared_address(tile) & 0x3FFFF) / 16;
}

// How TMA is told of a tensor's elements; those of other types of one byte may pass as uint8_t.
inline CUtensorMapDataType type_of(const uint8_t*) { return CU_TENSOR_MAP_DATA_TYPE_UINT8; }
inline CUtensorMapDataType type_of(const int32_t*) { return CU_TENSOR_MAP_DATA_TYPE_INT32; }
inline CUtensorMapDataType type_of(const int64_t*) { return CU_TENSOR_MAP_DATA_TYPE_INT64; }
inline CUtensorMapDataType type_of(const __half*) { return CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }
inline CUtensorMapDataType type_of(const bf16*) { return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; }
inline CUtensorMapDataType type_of(const float*) { return CU_TENSOR_MAP_DATA_TYPE_FLOAT32; }
inline CUtensorMapDataType type_of(const double*) { return CU_TENSOR_MAP_DATA_TYPE_FLOAT64; }

// Describes a tensor without gaps to TMA, to be copied in boxes; sizes begin with the innermost dimension. The data
// must begin at a multiple of 16 bytes, and so must each row.
template <typename Element, int dimensions>
cudaError_t describe(CUtensorMap* map, const Element* data, const int64_t (&sizes)[dimensions],
                     const uint32_t (&box)[dimensions], CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
  static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
  if (!encode) TRY(find_driver_function(&encode, "cuTensorMapEncodeTiled"));
  cuuint64_t counts[dimensions], strides[dimensions], bytes = sizeof(Element);  // of the last dimension, none is asked
  cuuint32_t steps[dimensions];
  for (int i = 0; i < dimensions; ++i) counts[i] = sizes[i], strides[i] = bytes *= sizes[i], steps[i] = 1;
  const CUresult result =
      encode(map, type_of(data), dimensions, const_cast<Element*>(data), counts, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The same of a matrix [rows, columns] of bf16 in row order, in boxes of `box_rows` x 64 that are swizzled like tiles.
inline cudaError_t describe(CUtensorMap* map, const bf16* data, int64_t rows, int64_t columns, uint32_t box_rows) {
  return describe(map, data, {columns, rows}, {uint32_t(ROW), box_rows}, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}
