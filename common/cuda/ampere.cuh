// Ampere's instructions in C++: copies to shared memory that no register carries, fragments, and products of a warp.
//
// Each function is one instruction (PTX ISA 9.0, "cp.async", "ldmatrix", "mma") and runs from sm_80.
#pragma once
#include "kernel.cuh"

// Starts copying 4 or 16 bytes to shared memory. Copies of 16 go past the L1 cache.
template <int bytes>
__device__ inline void copy_async(uint32_t to, const void* from) {
  static_assert(bytes == 4 || bytes == 16);
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
  }
}

// The same of 16 bytes, of which only the first `read` are read: the others are zeros. `from` is a valid address in any
// case.
template <int bytes>
__device__ inline void copy_async(uint32_t to, const void* from, int read) {
  static_assert(bytes == 16);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read) : "memory");
}

template <int bytes, typename... Read>
__device__ inline void copy_async(void* to, const void* from, Read... read) {
  copy_async<bytes>(shared_address(to), from, read...);
}

// Ends a group of this thread's copies, which may be empty, so that groups can be counted.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's groups of copies have not landed.
template <int pending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Waits for all of this thread's copies, in groups or not.
__device__ inline void wait_for_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Four matrices of 8 x 8 numbers of 16 bits, lane 8 i + r naming row r of matrix i. Each lane gets two neighbours of
// row lane / 4 of each, from 2 (lane % 4) on.
__device__ inline void load_matrices(uint32_t* to, uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_matrices(uint32_t* to, const void* row) { load_matrices(to, shared_address(row)); }

// sum[16, 8] += a[16, 16] b[8, 16]^T, of bf16.
__device__ inline void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t* b) {
  multiply(sum, a, b[0], b[1]);
}

// The same of fp16.
__device__ inline void multiply_half(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
