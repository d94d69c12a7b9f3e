// Tell the driver that managed memory is mostly read, so that each side keeps a copy; the GPU's is made at once.
#include "kernel.cuh"

extern "C" int keep_copies(int64_t address, int64_t bytes, cudaStream_t stream) {
  const auto memory = reinterpret_cast<const void*>(address);
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
#if CUDART_VERSION >= 13000
  const cudaMemLocation here = {cudaMemLocationTypeDevice, device};
  if (!status) status = cudaMemAdvise(memory, bytes, cudaMemAdviseSetReadMostly, here);  // of whatever location
  if (!status) status = cudaMemPrefetchAsync(memory, bytes, here, 0, stream);
#else
  if (!status) status = cudaMemAdvise(memory, bytes, cudaMemAdviseSetReadMostly, device);
  if (!status) status = cudaMemPrefetchAsync(memory, bytes, device, stream);
#endif
  return status;
}
