// Hopper's asynchronous units in C++: TMA copies, the mbarriers that tell of their end, and products of a warpgroup.
//
// Each function is one instruction (PTX ISA 9.0, "Asynchronous copy", "mbarrier", "wgmma"): wgmma for sm_90a alone, the
// rest from sm_90.
//
// All tiles in shared memory are rows of 64 bf16, which are 128 bytes, in the 128-byte swizzle: of the eight pieces of
// 16 bytes of row r, piece p stands at place p ^ (r % 8). Eight rows of one piece then lie in different banks. TMA
// writes and reads tiles in this form, wgmma reads it, and the pattern repeats every 1024 bytes: tiles begin there.
#pragma once
#include <cuda.h>

#include "kernel.cuh"

using bf16 = __nv_bfloat16;
using Barrier = uint64_t;  // an mbarrier, in shared memory

constexpr int ROW = 64;             // elements of a tile's row
constexpr int GROUP_THREADS = 128;  // of a warpgroup

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Where piece `piece` of row `row` stands in a tile, in bytes.
__device__ inline int swizzled(int row, int piece) { return row * 128 + (piece ^ row % 8) * 16; }

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

// Arrives, and has the phase wait for `bytes` that copies will write.
__device__ inline void arrive_and_expect(Barrier* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

__device__ inline void wait(Barrier* barrier, uint32_t parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (!ended);
}

// Copies by TMA, which one thread starts. `map` describes the tensor in memory; parts of a box beyond it are read as
// zeros, which count as bytes that landed, and are not written.

__device__ inline void load_box(void* tile, const CUtensorMap* map, int column, int row, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(tile)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

// The same into every block of the cluster whose bit is set in `blocks`, at the same place and barrier of each.
__device__ inline void load_box_to_many(void* tile, const CUtensorMap* map, int column, int row, Barrier* barrier,
                                        uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(tile)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
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

// Adds a row of floats in shared memory to one in memory. Each number's addition is atomic, the row's is not. Belongs to
// the thread's group of stores.
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

// A barrier of one warpgroup; `name` from 1 to 15, as 0 is __syncthreads.
__device__ inline void sync_group(int name) { asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory"); }

// A barrier of all threads of a cluster.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The same in its two halves, to know that all blocks have begun before any writes into another's shared memory.
// Relaxed: it tells of nothing but barriers, which publish_barriers() has told of.
__device__ inline void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

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

// Which block of its cluster this is.
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Products of a warpgroup: sum[64, N] += a[64, 16] b[N, 16]^T, read from shared memory while the threads go on.

// Tells wgmma of a tile of rows of 64 elements whose first eight rows begin here: address, distance of 1024 bytes to
// the next eight rows, 128-byte swizzle (the second field is not used with a swizzle). All in units of 16 bytes, so
// 16 elements further along the rows is 2 more.
__device__ inline uint64_t descriptor(const bf16* tile) {
  constexpr uint64_t FORM = uint64_t(1) << 62 | uint64_t(1024 / 16) << 32 | uint64_t(1) << 16;
  return FORM | (shared_address(tile) & 0x3FFFF) / 16;
}

// Keeps the compiler, which takes a product for done once it has begun, from moving uses of its registers past here.
template <int registers>
__device__ inline void hold(float (&sum)[registers]) {
#pragma unroll
  for (int i = 0; i < registers; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// The number of this thread's warpgroup, which the compiler then knows to be one number for the whole warp.
__device__ inline int group_of_thread() { return __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0); }

// Before the first product, and after any other write to its registers.
__device__ inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `pending` groups of products have not ended.
template <int pending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

__device__ inline void multiply(float (&sum)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, 1, 1, 1, 0, 0;"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]),
      "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
      "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]),
      "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]),
      "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]),
      "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
      "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]),
      "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55]),
      "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]),
      "+f"(sum[63])
      : "l"(a), "l"(b));
}

__device__ inline void multiply(float (&sum)[128], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "
      "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "
      "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
      "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, 1, 1, 1, 0, 0;"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]),
      "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
      "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]),
      "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]),
      "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]),
      "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
      "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]),
      "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55]),
      "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]),
      "+f"(sum[63]), "+f"(sum[64]), "+f"(sum[65]), "+f"(sum[66]), "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]),
      "+f"(sum[70]), "+f"(sum[71]), "+f"(sum[72]), "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75]), "+f"(sum[76]),
      "+f"(sum[77]), "+f"(sum[78]), "+f"(sum[79]), "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]),
      "+f"(sum[84]), "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]), "+f"(sum[88]), "+f"(sum[89]), "+f"(sum[90]),
      "+f"(sum[91]), "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95]), "+f"(sum[96]), "+f"(sum[97]),
      "+f"(sum[98]), "+f"(sum[99]), "+f"(sum[100]), "+f"(sum[101]), "+f"(sum[102]), "+f"(sum[103]), "+f"(sum[104]),
      "+f"(sum[105]), "+f"(sum[106]), "+f"(sum[107]), "+f"(sum[108]), "+f"(sum[109]), "+f"(sum[110]), "+f"(sum[111]),
      "+f"(sum[112]), "+f"(sum[113]), "+f"(sum[114]), "+f"(sum[115]), "+f"(sum[116]), "+f"(sum[117]), "+f"(sum[118]),
      "+f"(sum[119]), "+f"(sum[120]), "+f"(sum[121]), "+f"(sum[122]), "+f"(sum[123]), "+f"(sum[124]), "+f"(sum[125]),
      "+f"(sum[126]), "+f"(sum[127])
      : "l"(a), "l"(b));
}

// One tile's row of 64 elements: four products, after which wait_for_products() tells that the tiles are free.
template <int registers>
__device__ inline void multiply_row(float (&sum)[registers], const bf16* a, const bf16* b) {
  const uint64_t rows = descriptor(a), columns = descriptor(b);
  hold(sum);
  fence_products();
#pragma unroll
  for (int k = 0; k < ROW / 16; ++k) multiply(sum, rows + 2 * k, columns + 2 * k);
  commit_products();
  hold(sum);
}

// Waits for all products; then `sum` may be read.
template <int registers>
__device__ inline void finish_products(float (&sum)[registers]) {
  wait_for_products<0>();
  hold(sum);
}

// Thread t of a warpgroup holds, of its 64 rows, 16 (t / 32) + t % 32 / 4 and the one 8 below, and of each 8 columns
// the pair 2 (t % 4): sum[4 j + 2 i + c] is row 8 i on, column 8 j + c on. This writes those within [m, n], n even.
template <int registers>
__device__ inline void store_sums(const float (&sum)[registers], bf16* out, int64_t row, int64_t column, int64_t m,
                                  int64_t n) {
  const int thread = threadIdx.x % GROUP_THREADS;
  row += thread / 32 * 16 + thread % 32 / 4;
  column += thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < registers / 4; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row + 8 * i < m && column + 8 * j < n) {
        *reinterpret_cast<__nv_bfloat162*>(out + (row + 8 * i) * n + column + 8 * j) =
            __floats2bfloat162_rn(sum[4 * j + 2 * i], sum[4 * j + 2 * i + 1]);
      }
    }
  }
}

// Four matrices of 8 x 8 bf16 to shared memory: of each, thread t holds row t / 4, columns 2 (t % 4) and the next, as
// sums are held. Lane 8 i + r names the place of row r of matrix i.
__device__ inline void store_matrices(void* row, const float* sum) {
  uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair[i]) : "f"(sum[2 * i + 1]), "f"(sum[2 * i]));
  }
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
               : "memory");
}

// Describes a matrix [rows, columns] of bf16 in row order to TMA, to be copied in boxes of `box_rows` x 64. The data
// must begin at a multiple of 16 bytes, and so must each row: columns in eights. The driver's function is asked for by
// name, which spares linking with libcuda.
inline cudaError_t describe(CUtensorMap* map, const bf16* data, int64_t rows, int64_t columns, uint32_t box_rows) {
  static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
  if (!encode) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (error != cudaSuccess) return error;
    if (status != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    encode = reinterpret_cast<decltype(encode)>(found);
  }
  const cuuint64_t sizes[2] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[1] = {2 * cuuint64_t(columns)};
  const cuuint32_t box[2] = {ROW, box_rows}, steps[2] = {1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(data), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
