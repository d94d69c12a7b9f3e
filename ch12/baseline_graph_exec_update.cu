// New pointers and rates for a line of kernels: captured and instantiated again for each run.
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

cudaError_t capture(cudaStream_t stream, cudaGraph_t* graph, const float* field, const float* rates, float* out,
                    float* scratch, int n, int count) {
  TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  for (int index = 0; index < count; ++index) {
    const Arguments a(field, rates, out, scratch, n, count, index);
    relax<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(a.field, a.x, a.next, a.rate, a.n);
  }
  return cudaStreamEndCapture(stream, graph);
}

struct State {
  cudaStream_t side;  // captures; the caller's may be the default stream, which refuses
  cudaGraphExec_t ready;
};

// Leaves a State in page-locked memory, for `run`; `discard` frees it.
extern "C" int make_state(int64_t* state, cudaStream_t stream) {
  auto made = new State{};
  *state = reinterpret_cast<int64_t>(made);
  return cudaStreamCreateWithFlags(&made->side, cudaStreamNonBlocking);
}

// rates is in page-locked memory, which the host reads; the values are copied into the graph.
extern "C" int run(int64_t state, const float* field, const float* rates, float* out, float* scratch, int n, int count,
                   cudaStream_t stream) {
  auto made = reinterpret_cast<State*>(state);
  if (made->ready) TRY(cudaGraphExecDestroy(made->ready));  // the caller has waited for the last run
  made->ready = nullptr;
  cudaGraph_t graph;
  TRY(capture(made->side, &graph, field, rates, out, scratch, n, count));
  TRY(cudaGraphInstantiate(&made->ready, graph, 0));
  TRY(cudaGraphDestroy(graph));
  return cudaGraphLaunch(made->ready, stream);
}

extern "C" int discard(int64_t state, cudaStream_t stream) {
  auto made = reinterpret_cast<State*>(state);
  if (made->ready) TRY(cudaGraphExecDestroy(made->ready));
  TRY(cudaStreamDestroy(made->side));
  delete made;
  return cudaSuccess;
}
