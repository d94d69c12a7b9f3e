// What orders blocks and kernels: a barrier of all blocks, and kernels that begin before the last one has ended.
#pragma once
#include "kernel.cuh"

// All blocks have come here `times` times; what they wrote before can then be seen past the L1 caches. All of them must
// be on the GPU at once, which a cooperative launch guarantees. `arrived` is zero at first. The last of the block's
// `threads` does it, as it is the likeliest to have no loads under way, for which its fences would wait.
template <int threads>
__device__ inline void grid_barrier(unsigned* arrived, unsigned times) {
  __syncthreads();
  if (threadIdx.x == threads - 1) {
    __threadfence();
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    unsigned seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    } while (seen < times * gridDim.x);
    __threadfence();
  }
  __syncthreads();
}

// Programmatic dependent launch, from sm_90; before that there is nothing to do.

// The next kernel's blocks may start as soon as all of this kernel's have come here or ended, where there is room.
__device__ inline void start_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before has ended and all that it wrote can be seen. If that kernel waited likewise for the one
// before it, all kernels up to here have ended.
__device__ inline void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches a kernel that, if `early`, may start before the last one of its stream has ended. In a capture this makes a
// programmatic edge of the graph.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_early(bool early, void (*kernel)(Parameters...), dim3 blocks, int threads, size_t shared_bytes,
                         cudaStream_t stream, Arguments... given) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {blocks, dim3(threads), shared_bytes, stream, &attribute, early ? 1u : 0u};
  return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

// The same without dynamic shared memory.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_early(bool early, void (*kernel)(Parameters...), dim3 blocks, int threads, cudaStream_t stream,
                         Arguments... given) {
  return launch_early(early, kernel, blocks, threads, size_t(0), stream, given...);
}
