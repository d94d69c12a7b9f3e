"""What treats each token by itself is captured, for token counts in steps of 16; only attention is launched freely."""

from functools import partial

from torch import Tensor

from ch16.baseline_piecewise_graphs import Made, piece, serving
from ch16.baseline_piecewise_graphs import workload as workload
from common.models.decoder import Shape, Weights
from common.models.graphs import replayable
from common.python.workload import Step

BUCKET = 16  # tokens


def prepare(weights: Weights, shape: Shape, texts: Tensor, counts: Tensor) -> Step:
    graphs = {}

    def captured(size: int) -> None:
        given, made = texts.new_zeros(2, size), [()] * (shape.layers + 1)

        def work(index: int) -> None:
            made[index] = piece(weights, shape, index, *given, made[index - 1])

        graphs[size] = given, made, [replayable(partial(work, index), texts.device) for index in range(len(made))]

    def run(index: int, tokens: Tensor, positions: Tensor, _: Made) -> Made:
        given, made, replays = graphs[-(-len(tokens) // BUCKET) * BUCKET]
        if index == 0:
            given[0, : len(tokens)], given[1, : len(tokens)] = tokens, positions
        replays[index]()
        return made[index]

    for size in {-(-count // BUCKET) * BUCKET for count in counts.sum(1).tolist()}:
        captured(size)
    return serving(weights, shape, texts, counts, run)
