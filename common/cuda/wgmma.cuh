// Products of a warpgroup in C++: sum[64, N] += a[64, K] b[N, K]^T, read while the threads go on.
//
// Each function that ends in a product is one instruction (PTX ISA 9.0, "wgmma"), for sm_90a alone. Tiles in shared
// memory have the form that tma.cuh describes.
#pragma once
#include "tma.cuh"

constexpr int GROUP_THREADS = 128;  // of a warpgroup

// The number of this thread's warpgroup, which the compiler then knows to be one number for the whole warp.
__device__ inline int group_of_thread() { return __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0); }

// A barrier of one warpgroup; `name` from 1 to 15, as 0 is __syncthreads.
__device__ inline void sync_group(int name) { asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory"); }

// Keeps the compiler, which takes a product for done once it has begun, from moving uses of its registers past here.
template <int registers>
__device__ inline void hold(float (&sum)[registers]) {
#pragma unroll
  for (int i = 0; i < registers; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
template <int registers>
__device__ inline void hold(int32_t (&sum)[registers]) {
#pragma unroll
  for (int i = 0; i < registers; ++i) asm volatile("" : "+r"(sum[i])::"memory");
}

// Before the first product, and after any other write to its registers.
__device__ inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `pending` groups of products have not ended.
template <int pending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// The registers of sums as wgmma names them, and as C++ hands them over.
#define EIGHT(kind, sum, i) \
  kind(sum[i]), kind(sum[i + 1]), kind(sum[i + 2]), kind(sum[i + 3]), kind(sum[i + 4]), kind(sum[i + 5]), \
      kind(sum[i + 6]), kind(sum[i + 7])
#define HALF_OF_SUMS(kind, sum, i) \
  EIGHT(kind, sum, i), EIGHT(kind, sum, i + 8), EIGHT(kind, sum, i + 16), EIGHT(kind, sum, i + 24), \
      EIGHT(kind, sum, i + 32), EIGHT(kind, sum, i + 40), EIGHT(kind, sum, i + 48), EIGHT(kind, sum, i + 56)
#define SUMS_64(sum) HALF_OF_SUMS("+f", sum, 0)
#define SUMS_128(sum) HALF_OF_SUMS("+f", sum, 0), HALF_OF_SUMS("+f", sum, 64)
#define WHOLE_SUMS_128(sum) HALF_OF_SUMS("+r", sum, 0), HALF_OF_SUMS("+r", sum, 64)
#define NAMES_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128 \
  NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, " \
  "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
  "%122, %123, %124, %125, %126, %127"

// a and b of bf16 in shared memory, 16 columns deep.
__device__ inline void multiply(float (&sum)[64], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64 "}, %64, %65, 1, 1, 1, 0, 0;"
               : SUMS_64(sum)
               : "l"(a), "l"(b));
}
__device__ inline void multiply(float (&sum)[128], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES_128 "}, %128, %129, 1, 1, 1, 0, 0;"
               : SUMS_128(sum)
               : "l"(a), "l"(b));
}

// The same of fp16.
__device__ inline void multiply_half(float (&sum)[64], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" NAMES_64 "}, %64, %65, 1, 1, 1, 0, 0;"
               : SUMS_64(sum)
               : "l"(a), "l"(b));
}
__device__ inline void multiply_half(float (&sum)[128], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" NAMES_128 "}, %128, %129, 1, 1, 1, 0, 0;"
               : SUMS_128(sum)
               : "l"(a), "l"(b));
}

// As `multiply` of a and b whose rows run along those and the columns of the sum: a[16, 64]^T b[16, 256].
__device__ inline void multiply_columns(float (&sum)[128], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES_128 "}, %128, %129, 1, 1, 1, 1, 1;"
               : SUMS_128(sum)
               : "l"(a), "l"(b));
}

// a of bf16 in registers, and rows of b that run along those of the sum: a[64, 16] b[16, 128].
__device__ inline void multiply_held(float (&sum)[64], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : SUMS_64(sum)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The same, and rows of b that run along those of a: a[64, 16] b[128, 16]^T.
__device__ inline void multiply_held_rows(float (&sum)[64], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
               : SUMS_64(sum)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The same of e4m3: a[64, 32] b[128, 32]^T.
__device__ inline void multiply_held_fp8(float (&sum)[64], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" NAMES_64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1;"
               : SUMS_64(sum)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// a and b of e4m3 in shared memory, 32 columns deep; unless `add`, the sums begin anew.
__device__ inline void multiply_fp8(float (&sum)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" NAMES_64 "}, %64, %65, add, 1, 1;\n}"
               : SUMS_64(sum)
               : "l"(a), "l"(b), "r"(int(add)));
}
__device__ inline void multiply_fp8(float (&sum)[128], uint64_t a, uint64_t b, bool add) {
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" NAMES_128 "}, %128, %129, add, 1, 1;\n}"
               : SUMS_128(sum)
               : "l"(a), "l"(b), "r"(int(add)));
}

// a and b of int8 in shared memory, 32 columns deep.
__device__ inline void multiply_int8(int32_t (&sum)[128], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" NAMES_128 "}, %128, %129, 1;"
               : WHOLE_SUMS_128(sum)
               : "l"(a), "l"(b));
}

#undef EIGHT
#undef HALF_OF_SUMS
#undef SUMS_64
#undef SUMS_128
#undef WHOLE_SUMS_128
#undef NAMES_64
#undef NAMES_128

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
template <typename Number, int registers>
__device__ inline void finish_products(Number (&sum)[registers]) {
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

// The same matrices turned over: lane 8 i + r names the place of column r of matrix i.
__device__ inline void store_matrices_turned(void* column, const float* sum) {
  uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair[i]) : "f"(sum[2 * i + 1]), "f"(sum[2 * i]));
  }
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(column)),
               "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
               : "memory");
}
