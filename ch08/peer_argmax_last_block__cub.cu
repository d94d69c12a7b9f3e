// CUB's DeviceSegmentedReduce::ArgMax, of whose pairs of place and value the places are stored.
#include "kernel.cuh"
#include <cub/device/device_segmented_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <iterator>

// Where CUB writes pairs: an iterator over ids that keeps a pair's first part.
struct Ids {
  using iterator_category = std::random_access_iterator_tag;
  using value_type = void;  // so that CUB takes the pairs' type from the logits
  using difference_type = ptrdiff_t;
  using pointer = void;
  struct reference {
    int64_t* id;
    __device__ void operator=(const cub::KeyValuePair<int, float>& pair) const { *id = pair.key; }
  };
  int64_t* ids;
  __host__ __device__ reference operator*() const { return {ids}; }
  __host__ __device__ reference operator[](ptrdiff_t i) const { return {ids + i}; }
  __host__ __device__ Ids operator+(ptrdiff_t i) const { return {ids + i}; }
};

struct Begin {
  int vocabulary;
  __host__ __device__ int operator()(int row) const { return row * vocabulary; }
};

// Fails with cudaErrorInvalidValue where `scratch_bytes` are too few.
extern "C" int argmax(const float* logits, uint8_t* scratch, int64_t scratch_bytes, int64_t* ids, int64_t rows,
                      int64_t vocabulary, cudaStream_t stream) {
  size_t bytes = scratch_bytes;
  const auto begin = thrust::make_transform_iterator(thrust::make_counting_iterator(0), Begin{int(vocabulary)});
  return cub::DeviceSegmentedReduce::ArgMax(scratch, bytes, logits, Ids{ids}, rows, begin, begin + 1, stream);
}
