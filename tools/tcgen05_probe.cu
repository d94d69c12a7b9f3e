// One tcgen05 matrix multiply through tensor memory, checked on the host: D[128x64] = A[128x16] B[64x16]^T in bf16.
//
//   nvcc -arch=compute_100a -code=sm_100a -o tcgen05_probe tools/tcgen05_probe.cu && ./tcgen05_probe
//
// and with 103a for B300 and GB300. (-arch=sm_100a alone makes nvcc 13.0 build for compute_100 as well, which has none
// of these instructions.) Exit code 0: right; 1: wrong, or a CUDA error; 2: this device has no tcgen05.
//
// Compiled for both targets, not run: no such GPU was at hand. For sm_121a (GB10) ptxas refuses it, and that is to be
// seen: nothing here is behind __CUDA_ARCH__.
//
// Sections are those of the PTX ISA under "TensorCore 5th Generation Family Instructions", by name and anchor, since
// their numbers move between releases: https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-...
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <vector>

constexpr int M = 128;  // rows of A and D: one row is one lane of tensor memory ("Layout D": M = 128, cta_group::1)
constexpr int N = 64;   // rows of B, columns of D: one 32-bit column of tensor memory each
constexpr int K = 16;   // fixed by .kind::f16 ("Matrix Shape", #tcgen05-matrix-shape)
constexpr int THREADS = 128;  // tcgen05.ld gives a warp 32 of the 128 lanes: four warps read all of them

// "Canonical Layouts" (#tcgen05-canonical-layouts), K-major without swizzle: ((8,m),(T,2k)):((1T,SBO),(1,LBO)) with
// T = 8 elements of 16 bits. So 8 rows of 16 bytes, one below the other, are a core matrix of 128 contiguous bytes;
// LBO leads from a core matrix to the next along K, SBO to the next along M or N.
constexpr uint32_t ROW_BYTES = 16;
constexpr uint32_t LBO = 8 * ROW_BYTES;
constexpr uint32_t SBO = 2 * LBO;  // K = 16 is two core matrices

// Where element (row, k) of an operand stands, in elements of bf16.
__host__ __device__ constexpr int place(int row, int k) {
  return (row / 8 * SBO + k / 8 * LBO + row % 8 * ROW_BYTES) / sizeof(__nv_bfloat16) + k % 8;
}

// "Shared memory descriptor" (#tcgen05-shared-memory-descriptor), whose matrix-descriptor-encode this is.
__host__ __device__ constexpr uint64_t encode(uint64_t bytes) { return (bytes & 0x3FFFF) >> 4; }

__host__ __device__ constexpr uint64_t operand(uint32_t address) {
  return encode(address)       // bits 0-13: start address
         | encode(LBO) << 16   // bits 16-29: leading dimension byte offset
         | encode(SBO) << 32   // bits 32-45: stride dimension byte offset
         | uint64_t(1) << 46;  // bits 46-48: the constant 0b001
  // Zero are bits 49-51, base offset; 52, offsets are relative; 61-63, no swizzling.
}

// "Instruction descriptor" (#tcgen05-instruction-descriptor), format of .kind::f16.
constexpr uint32_t INSTRUCTION = 1u << 4           // bits 4-5: D is F32
                                 | 1u << 7         // bits 7-9: A is BF16
                                 | 1u << 10        // bits 10-12: B is BF16
                                 | N / 8 << 17     // bits 17-22: N without its three lowest bits
                                 | M / 16 << 24;   // bits 24-28: M without its four lowest bits
// Zero are bits 2, sparse; 13 and 14, negate; 15 and 16, transpose, as both operands are K-major; 30-31, shift.

__device__ uint32_t shared(const void* pointer) { return uint32_t(__cvta_generic_to_shared(pointer)); }

__device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void __launch_bounds__(THREADS) multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  __shared__ alignas(128) __nv_bfloat16 a_tile[M * K];
  __shared__ alignas(128) __nv_bfloat16 b_tile[N * K];
  __shared__ alignas(8) uint64_t done;
  __shared__ uint32_t allocated;
  const int thread = threadIdx.x, warp = thread / 32;

  for (int i = thread; i < M * K; i += THREADS) a_tile[place(i / K, i % K)] = a[i];
  for (int i = thread; i < N * K; i += THREADS) b_tile[place(i / K, i % K)] = b[i];
  if (thread == 32) {  // of another warp than the one that allocates: that one must not diverge
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&done)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (warp == 0) {  // one warp allocates N columns, a power of two of 32 or more; all that is allocated must be freed
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(&allocated)), "n"(N)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  // The tensor core reads shared memory through the async proxy: what threads stored must be made visible to it.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const uint32_t columns = allocated;  // lane in bits 16-31, column in bits 0-15 ("Tensor Memory Addressing")

  if (thread == 0) {  // one thread issues, and the same one commits; the last operand is false: D = A B, not D += A B
    asm volatile(
        "{ .reg .pred accumulate; setp.ne.b32 accumulate, 0, 0;"
        "  tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate; }" ::"r"(columns),
        "l"(operand(shared(a_tile))), "l"(operand(shared(b_tile))), "r"(INSTRUCTION)
        : "memory");
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(&done))
                 : "memory");
  }
  uint32_t arrived = 0;
  for (const uint64_t start = nanoseconds(); !arrived;) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
        : "=r"(arrived)
        : "r"(shared(&done))
        : "memory");
    if (nanoseconds() - start > 1'000'000'000) __trap();  // a launch failure says more than a program that hangs
  }
  __syncthreads();  // tcgen05.ld is for warps whose threads are together again
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

  for (int column = 0; column < N; column += 8) {
    uint32_t value[8];
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3]), "=r"(value[4]), "=r"(value[5]),
                   "=r"(value[6]), "=r"(value[7])
                 : "r"(columns + (uint32_t(warp) * 32 << 16) + column));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    for (int i = 0; i < 8; ++i) d[thread * N + column + i] = __uint_as_float(value[i]);
  }

  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(columns), "n"(N));
}

// Small whole numbers: exact in bf16, and so are their sums in fp32. No two rows, and no two values of k, are alike.
int a_value(int m, int k) { return (m * 7 + k * 5 + m / 8 * 3) % 31 - 15; }
int b_value(int n, int k) { return (n * 11 + k * 3 + n / 8 * 5) % 29 - 14; }

int failed(cudaError_t error, const char* what) {
  if (error != cudaSuccess) printf("tcgen05_probe: %s: %s\n", what, cudaGetErrorString(error));
  return error != cudaSuccess;
}

int main() {
  cudaDeviceProp device;
  if (const cudaError_t error = cudaGetDeviceProperties(&device, 0)) {
    printf("tcgen05_probe: no CUDA device: %s\n", cudaGetErrorString(error));
    return 2;
  }
  if (device.major != 10 || (device.minor != 0 && device.minor != 3)) {
    printf("tcgen05_probe: %s is sm_%d%d, which has no tcgen05: it is for sm_100 and sm_103\n", device.name,
           device.major, device.minor);
    return 2;
  }

  std::vector<__nv_bfloat16> a(M * K), b(N * K);
  for (int i = 0; i < M * K; ++i) a[i] = __float2bfloat16(a_value(i / K, i % K));
  for (int i = 0; i < N * K; ++i) b[i] = __float2bfloat16(b_value(i / K, i % K));
  std::vector<float> d(M * N, -1e9f);
  __nv_bfloat16 *on_a, *on_b;
  float* on_d;
  if (failed(cudaMalloc(&on_a, a.size() * 2), "cudaMalloc") || failed(cudaMalloc(&on_b, b.size() * 2), "cudaMalloc") ||
      failed(cudaMalloc(&on_d, d.size() * 4), "cudaMalloc") ||
      failed(cudaMemcpy(on_a, a.data(), a.size() * 2, cudaMemcpyHostToDevice), "copy of A") ||
      failed(cudaMemcpy(on_b, b.data(), b.size() * 2, cudaMemcpyHostToDevice), "copy of B") ||
      failed(cudaMemcpy(on_d, d.data(), d.size() * 4, cudaMemcpyHostToDevice), "copy of D")) {
    return 1;
  }
  multiply<<<1, THREADS>>>(on_a, on_b, on_d);
  if (failed(cudaGetLastError(), "launch") || failed(cudaDeviceSynchronize(), "kernel") ||
      failed(cudaMemcpy(d.data(), on_d, d.size() * 4, cudaMemcpyDeviceToHost), "copy of the result")) {
    return 1;
  }

  int wrong = 0;
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      int expected = 0;
      for (int k = 0; k < K; ++k) expected += a_value(m, k) * b_value(n, k);
      if (d[m * N + n] == float(expected)) continue;
      if (wrong++ < 4) printf("D[%d][%d] is %g, should be %d\n", m, n, d[m * N + n], expected);
    }
  }
  printf("tcgen05_probe: %s (%s, sm_%d%d): %d of %d elements differ\n", wrong ? "wrong" : "right", device.name,
         device.major, device.minor, wrong, M * N);
  return wrong ? 1 : 0;
}
