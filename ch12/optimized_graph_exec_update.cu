// New pointers and rates for a line of kernels: set in pieces of the line, while the GPU runs the pieces before.
#include <vector>

#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int PIECE = 50;  // kernels of an executable graph

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

struct Piece {
  cudaGraph_t graph;  // kept, because its nodes name the executable's
  cudaGraphExec_t ready;
  std::vector<cudaGraphNode_t> nodes;
};

using State = std::vector<Piece>;

// Leaves a State in page-locked memory, for `run`; `discard` frees it.
extern "C" int make_state(int64_t* state, cudaStream_t stream) {
  *state = reinterpret_cast<int64_t>(new State);
  return cudaSuccess;
}

// One node behind the other, with the arguments of this step: new ones in the first step, and later the same.
static cudaError_t set_nodes(Piece* piece, const float* field, const float* rates, float* out, float* scratch, int n,
                             int count, int begin) {
  const bool first = !piece->ready;
  for (int index = 0; index < int(piece->nodes.size()); ++index) {
    Arguments a(field, rates, out, scratch, n, count, begin + index);
    void* pointers[] = {&a.field, &a.x, &a.next, &a.rate, &a.n};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(relax);
    params.gridDim = dim3(ceil_div(n, THREADS));
    params.blockDim = dim3(THREADS);
    params.kernelParams = pointers;  // the values behind them are copied by the call
    cudaGraphNode_t* node = &piece->nodes[index];
    if (first) {
      TRY(cudaGraphAddKernelNode(node, piece->graph, index > 0 ? node - 1 : nullptr, index > 0 ? 1 : 0, &params));
    } else {
      TRY(cudaGraphExecKernelNodeSetParams(piece->ready, *node, &params));
    }
  }
  return first ? cudaGraphInstantiate(&piece->ready, piece->graph, 0) : cudaSuccess;
}

// rates is in page-locked memory, which the host reads; the values are copied into the graphs.
extern "C" int run(int64_t state, const float* field, const float* rates, float* out, float* scratch, int n, int count,
                   cudaStream_t stream) {
  State& pieces = *reinterpret_cast<State*>(state);
  for (int begin = 0; begin < count; begin += PIECE) {
    const size_t place = begin / PIECE;
    if (place == pieces.size()) {
      pieces.push_back({nullptr, nullptr, std::vector<cudaGraphNode_t>(count - begin < PIECE ? count - begin : PIECE)});
      TRY(cudaGraphCreate(&pieces.back().graph, 0));
    }
    TRY(set_nodes(&pieces[place], field, rates, out, scratch, n, count, begin));
    TRY(cudaGraphLaunch(pieces[place].ready, stream));  // it runs while the next piece is set
  }
  return cudaSuccess;
}

extern "C" int discard(int64_t state, cudaStream_t stream) {
  auto pieces = reinterpret_cast<State*>(state);
  for (const Piece& piece : *pieces) {
    if (piece.ready) TRY(cudaGraphExecDestroy(piece.ready));
    TRY(cudaGraphDestroy(piece.graph));
  }
  delete pieces;
  return cudaSuccess;
}
