// Loss-scaled updates as one graph: AdamW is the body of an IF node, whose condition the last block of the check sets.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int BLOCKS = 1024;  // at most; they stride over longer tensors
constexpr float RATE = 1e-3f, DECAY = 0.1f, BETA1 = 0.9f, BETA2 = 0.999f, EPSILON = 1e-8f;

// Looks for gradients that are infinite or not a number. The last block to end decides: sound gradients count as an update,
// others halve the scale of the loss from here on. state: blocks that have found one, and blocks that have ended; both
// are 0 again at the end.
__global__ void check(const float* gradients, int* state, float* scale, float* updates,
                      cudaGraphConditionalHandle taken, int64_t n) {
  bool bad = false;
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) {
    bad |= !isfinite(gradients[i]);
  }
  bad = __syncthreads_or(bad);
  if (threadIdx.x > 0) return;
  if (bad) atomicAdd(state, 1);
  __threadfence();
  if (atomicAdd(state + 1, 1) + 1 < int(gridDim.x)) return;
  const int sound = atomicExch(state, 0) == 0;
  state[1] = 0;
  if (sound) {
    *updates += 1.0f;
  } else {
    *scale = fmaxf(*scale * 0.5f, 1.0f);
  }
  cudaGraphSetConditional(taken, sound);  // whether the body of the IF node runs
}

__global__ void update(const float* gradients, float* parameters, float* means, float* squares, const float* scale,
                       const float* updates, int64_t n) {
  const float inverse = 1.0f / *scale, unbias1 = 1.0f - powf(BETA1, *updates), unbias2 = 1.0f - powf(BETA2, *updates);
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) {
    const float gradient = gradients[i] * inverse;
    const float mean = means[i] = BETA1 * means[i] + (1.0f - BETA1) * gradient;
    const float square = squares[i] = BETA2 * squares[i] + (1.0f - BETA2) * gradient * gradient;
    const float change = mean / unbias1 / (sqrtf(square / unbias2) + EPSILON);
    parameters[i] = parameters[i] * (1.0f - RATE * DECAY) - RATE * change;
  }
}

int64_t blocks_for(int64_t n) { return ceil_div(n, THREADS) < BLOCKS ? ceil_div(n, THREADS) : BLOCKS; }

// Adds a kernel of one launch's shape to `graph`, behind `after` if that is a node, which it then replaces.
template <typename... Parameters>
cudaError_t add(cudaGraph_t graph, cudaGraphNode_t* after, void (*kernel)(Parameters...), int64_t blocks, int threads,
                Parameters... given) {
  void* pointers[] = {&given...};
  cudaKernelNodeParams params = {};
  params.func = reinterpret_cast<void*>(kernel);
  params.gridDim = dim3(blocks);
  params.blockDim = dim3(threads);
  params.kernelParams = pointers;  // the values behind them are copied by the call
  const cudaGraphNode_t before = *after;
  return cudaGraphAddKernelNode(after, graph, before ? &before : nullptr, before ? 1 : 0, &params);
}

// Leaves a graph in page-locked memory, for `replay` to run and `discard` to free. It has the addresses of all tensors,
// so they must outlive it. gradients [count, n]; state is two numbers of scratch, which must be 0, and are so again
// after each replay.
extern "C" int record(const float* gradients, float* parameters, float* means, float* squares, float* scale,
                      float* updates, int* state, int count, int64_t n, int64_t* executable, cudaStream_t stream) {
  cudaGraph_t graph;
  TRY(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t last = nullptr;
  for (int64_t i = 0; i < count; ++i) {
    const float* own = gradients + i * n;
    cudaGraphConditionalHandle taken;  // a value on the device, which each launch of the graph sets to 0 at its start
    TRY(cudaGraphConditionalHandleCreate(&taken, graph, 0, cudaGraphCondAssignDefault));
    TRY(add(graph, &last, check, blocks_for(n), THREADS, own, state, scale, updates, taken, n));
    cudaGraphNodeParams branch = {cudaGraphNodeTypeConditional};
    branch.conditional.handle = taken;
    branch.conditional.type = cudaGraphCondTypeIf;
    branch.conditional.size = 1;
    const cudaGraphNode_t decision = last;
    TRY(cudaGraphAddNode(&last, graph, &decision, nullptr, 1, &branch));
    cudaGraphNode_t body = nullptr;
    TRY(add(branch.conditional.phGraph_out[0], &body, update, blocks_for(n), THREADS, own, parameters, means, squares,
            static_cast<const float*>(scale), static_cast<const float*>(updates), n));
  }
  cudaGraphExec_t ready;
  TRY(cudaGraphInstantiate(&ready, graph, 0));
  *executable = reinterpret_cast<int64_t>(ready);
  return cudaGraphDestroy(graph);
}

extern "C" int replay(int64_t executable, cudaStream_t stream) {
  return cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(executable), stream);
}

extern "C" int discard(int64_t executable, cudaStream_t stream) {
  return cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(executable));
}
