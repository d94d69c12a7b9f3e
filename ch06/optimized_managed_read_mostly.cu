// Tell the driver that managed memory is mostly read, so that each side keeps a copy; the GPU's is made at once.
#include "kernel.cuh"

extern "C" int keep_copies(int64_t address, int64_t bytes, cudaStream_t stream) {
  const auto memory = reinterpret_cast<const void*>(address);
  int device = 0;
  TRY(cudaGetDevice(&device));
#if CUDART_VERSION >= 13000
  const cudaMemLocation here = {cudaMemLocationTypeDevice, device};
  TRY(cudaMemAdvise(memory, bytes, cudaMemAdviseSetReadMostly, here));  // of whatever location
  return cudaMemPrefetchAsync(memory, bytes, here, 0, stream);
#else
  TRY(cudaMemAdvise(memory, bytes, cudaMemAdviseSetReadMostly, device));
  return cudaMemPrefetchAsync(memory, bytes, device, stream);
#endif
}
