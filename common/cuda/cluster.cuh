// Clusters of blocks: their barriers, distributed shared memory, and copies by TMA to many of them.
//
// Each function is one instruction, with the address in the other block that it takes; all run from sm_90.
#pragma once
#include "tma.cuh"

// Which block of its cluster this is.
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// A barrier of all threads of a cluster.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The same in its two halves, to know that all blocks have begun before any writes into another's shared memory.
// Relaxed: it tells of nothing but barriers, which publish_barriers() has told of.
__device__ inline void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Arrives at the same barrier of block `rank` of the cluster. Relaxed, as this tells of reads that have ended, not of
// writes to be seen: a release to the cluster is a MEMBAR.GPU each time, which cost a quarter of the rate.
__device__ inline void arrive_at(Barrier* barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// load_box() into every block of the cluster whose bit is set in `blocks`, at the same place and barrier of each.
__device__ inline void load_box_to_many(void* tile, const CUtensorMap* map, int column, int row, Barrier* barrier,
                                        uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(tile)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}

// Writes to the same place of block `rank` of the cluster, and counts 8 bytes as landed at the same barrier there:
// distributed shared memory, with no fence and no barrier of the cluster.
__device__ inline void store_at(float2* place, Barrier* barrier, uint32_t rank, float2 value) {
  asm volatile(
      "{\n.reg .b32 remote, landed;\n"
      "mapa.shared::cluster.u32 remote, %0, %2;\n"
      "mapa.shared::cluster.u32 landed, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [remote], {%3, %4}, [landed];\n}" ::"r"(
          shared_address(place)),
      "r"(shared_address(barrier)), "r"(rank), "f"(value.x), "f"(value.y)
      : "memory");
}

// Reads from the same place of block `rank` of the cluster, which must not have ended.
__device__ inline float4 load_at(const float4* place, uint32_t rank) {
  float4 value;
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(shared_address(place)), "r"(rank)
      : "memory");
  return value;
}

// Adds one to the same counter of block `rank` of the cluster, which must not have ended.
__device__ inline void count_at(const uint32_t* counter, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "red.relaxed.cluster.shared::cluster.add.u32 [remote], 1;\n}" ::"r"(shared_address(counter)),
      "r"(rank)
      : "memory");
}
