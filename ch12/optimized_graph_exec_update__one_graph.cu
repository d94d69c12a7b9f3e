// New pointers and rates for a line of kernels: set node by node in the executable graph, with no capture.
#include <vector>

#include "kernel.cuh"

constexpr int THREADS = 256;

// Moves x by one place around its ring and mixes in the field.
__global__ void relax(const float* field, const float* x, float* next, float rate, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) next[i] = (1.0f - rate) * x[i + 1 < n ? i + 1 : 0] + rate * field[i];
}

// The arguments of kernel `index` of `count`: from the field through scratch and out in turn, so that out is the last.
struct Arguments {
  const float *field, *x;
  float* next;
  float rate;
  int n;
  Arguments(const float* field, const float* rates, float* out, float* scratch, int n, int count, int index)
      : field(field), next((count - index) % 2 ? out : scratch), rate(rates[index]), n(n) {
    x = index == 0 ? field : next == out ? scratch : out;
  }
};

struct State {
  cudaGraph_t graph;  // kept, because its nodes name the executable's
  cudaGraphExec_t ready;
  std::vector<cudaGraphNode_t> nodes;
};

// Leaves a State in page-locked memory, for `run`; `discard` frees it.
extern "C" int make_state(int64_t* state, cudaStream_t stream) {
  auto made = new State{};
  *state = reinterpret_cast<int64_t>(made);
  return cudaGraphCreate(&made->graph, 0);
}

// rates is in page-locked memory, which the host reads; the values are copied into the graph.
extern "C" int run(int64_t state, const float* field, const float* rates, float* out, float* scratch, int n, int count,
                   cudaStream_t stream) {
  auto made = reinterpret_cast<State*>(state);
  const bool first = made->nodes.empty();
  if (first) made->nodes.resize(count);
  for (int index = 0; index < count; ++index) {
    Arguments a(field, rates, out, scratch, n, count, index);
    void* pointers[] = {&a.field, &a.x, &a.next, &a.rate, &a.n};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(relax);
    params.gridDim = dim3(ceil_div(n, THREADS));
    params.blockDim = dim3(THREADS);
    params.kernelParams = pointers;  // the values behind them are copied by the call
    cudaGraphNode_t* node = &made->nodes[index];
    if (first) {
      TRY(cudaGraphAddKernelNode(node, made->graph, index > 0 ? node - 1 : nullptr, index > 0 ? 1 : 0, &params));
    } else {
      TRY(cudaGraphExecKernelNodeSetParams(made->ready, *node, &params));
    }
  }
  if (first) TRY(cudaGraphInstantiate(&made->ready, made->graph, 0));
  return cudaGraphLaunch(made->ready, stream);
}

extern "C" int discard(int64_t state, cudaStream_t stream) {
  auto made = reinterpret_cast<State*>(state);
  if (made->ready) TRY(cudaGraphExecDestroy(made->ready));
  TRY(cudaGraphDestroy(made->graph));
  delete made;
  return cudaSuccess;
}
