"""What `benchmark_cli estimate` predicts for the decoders of chapters 15, 16 and 20, beside what they took.

`python -m tools.documentation.estimate_results` makes the table of docs/results/<gpu>/estimate.md anew, between its
markers: predictions by the formulas of `common/python/estimate/estimate.py` with the peaks of peaks.json beside it,
measurements from the chapters' expectations_<gpu>.json.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.python.base.hardware import datasheet
from common.python.base.journal import write
from common.python.base.results import PairResult, VariantResult
from common.python.estimate.estimate import Board, Floor, floor
from common.python.estimate.model_costs import WEIGHT_BYTES, WORK, Case, cache_bytes, kv_bytes_per_token
from common.python.estimate.model_shapes import Model, Shape, model_of
from common.python.peaks import store
from common.python.regress.expectations import expected
from common.python.report.markdown import escaped, replace_between_markers
from common.python.report.peak_text import figure
from common.python.report.publish import RESULTS
from tools.arguments import Arguments
from tools.cli.estimate_table import MARGIN, bytes_text, time_text
from tools.cli.estimating import RATES

ROOT = Path(__file__).resolve().parents[2]
PAGE, PEAKS = "estimate.md", "peaks.json"
BEGIN, END = "<!-- estimate:begin -->", "<!-- estimate:end -->"
COLUMNS = ("pair", "variant", "predicted from", "at least", "bound by", "measured", "times the least")
# What stored sizes name and do not spell out, or leave to the pairs' own files; tests hold these against them.
LLAMA = {"layers": 32, "vocabulary": 128256, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
MODELS = {"llama31_8b": LLAMA, "llama31_8b_sixteenth": {**LLAMA, "layers": 2, "vocabulary": 8064}}
PROPOSED, AGREED = 4, 0.8  # by the draft of speculative_decoding
ONE_LAYER = {**LLAMA, "layers": 1}  # what paged_kv keeps
TIME_OF_PAGED_KV = "no time: the formulas read weights, and this pair has none; they do not store keys and values"


@dataclass(frozen=True)
class Prediction:
    """The least that some variants take: milliseconds or, of a metric in MB, bytes; `bound` says what binds it."""

    variants: tuple[str, ...]  # labels; peers as `peer NAME`
    source: str
    least: float | None
    bound: str = ""
    metric: str | None = None


@dataclass(frozen=True)
class Row:
    """A prediction beside what one variant took, in the same unit; `ratio` is None where nothing is predicted."""

    pair: str
    variant: str
    prediction: Prediction
    measured: float | None

    @property
    def ratio(self) -> float | None:
        least = self.prediction.least
        return None if least is None or self.measured is None else self.measured / least


# Predictions, by pair: each takes the board and the pair's stored result.


def decoder(sizes: dict[str, Any]) -> Model:
    """The model of a pair's shape, whose words for it are those of `common/models/decoder.py`."""
    dim = sizes["width"] // sizes["heads"]
    of = {name: sizes[name] for name in ("layers", "heads", "kv_heads")}
    named = {"hidden": sizes["width"], "ffn": sizes["hidden"], "vocab": sizes["vocabulary"], "head_dim": dim}
    return model_of(Shape(name="of the pair", source="the pair's size", **of, **named))


def bf16(sizes: dict[str, Any], batch: int, context: int) -> Case:
    return Case(decoder(sizes), "bf16", "bf16", "bf16", batch, context)


def least(phase: str, case: Case, board: Board) -> Floor:
    return floor(WORK[phase](case), case, board, gpus=1)


def decoding(case: Case, board: Board, contexts: Iterable[int]) -> list[Floor]:
    """A step for each context."""
    return [least("decode", replace(case, context=context), board) for context in contexts]


def together(floors: Iterable[Floor]) -> tuple[float, str]:
    """Milliseconds of floors that follow each other, and what binds them."""
    found = list(floors)
    return sum(one.ms for one in found), " and ".join(sorted({one.bound for one in found}))


def kv_cache(board: Board, result: PairResult) -> Iterator[Prediction]:
    size: Any = result.shape
    case, end = bf16(size["shape"], size["batch"], size["prompt"]), size["prompt"] + size["new"]
    again = [least("prefill", replace(case, context=length), board) for length in range(size["prompt"], end)]
    yield Prediction(("baseline",), f"{size['new']} prefills of {size['batch']} growing texts", *together(again))
    floors = [again[0], *decoding(case, board, range(size["prompt"] + 1, end))]
    kept = f"a prefill of {size['batch']} x {size['prompt']}, {size['new'] - 1} decode steps"
    yield Prediction(("optimized", "graph", "peer compile"), kept, *together(floors))


def paged_kv(board: Board, result: PairResult) -> Iterator[Prediction]:
    size: Any = result.shape
    case = bf16(ONE_LAYER, size["requests"], size["longest"])
    each, tokens = kv_bytes_per_token(case) or 0.0, int(result.cost.items if result.cost else 0)
    rows = f"KV bytes of a token x {size['requests']} x {size['longest']}"
    yield Prediction(("baseline",), rows, cache_bytes(case), "reserved", "cache held MB")
    paged = ("optimized", "peer flashinfer")
    yield Prediction(paged, f"KV bytes of a token x {tokens} live", each * tokens, "live", "cache held MB")
    yield Prediction(("baseline", *paged), TIME_OF_PAGED_KV, None)


def continuous_batching(board: Board, result: PairResult) -> Iterator[Prediction]:
    """No slot is ever idle. A step is linear in its context, so all have the mean one, which the declared bytes tell.

    They are of the weights, once for all prompts and once a step, and of what each token finds in the cache.
    """
    size: Any = result.shape
    if result.cost is None:
        return
    slots, requests = (bf16(size["shape"], size[name], size["prompt"]) for name in ("slots", "requests"))
    decoded, model = int(result.cost.items) - size["requests"], slots.model
    steps = -(-decoded // size["slots"])
    cached = result.cost.hbm_bytes - (1 + steps) * WEIGHT_BYTES["bf16"] * (model.linear + model.head)
    mean = 1 + round(cached / (kv_bytes_per_token(slots) or 1.0) / decoded)  # with the token itself
    floors = [least("prefill", requests, board), *decoding(slots, board, [mean] * steps)]
    said = f"one prefill of {size['requests']} x {size['prompt']}, {steps} decode steps of {size['slots']} full slots"
    yield Prediction(("baseline", "optimized", "chunk_admission"), said, *together(floors))


def prefix_cache(board: Board, result: PairResult) -> Iterator[Prediction]:
    """Own tokens behind a prefix are what whole prompts take more than their prefixes do."""
    size: Any = result.shape
    shared, count = size["shared"], size["requests"]
    whole, part = (bf16(size["shape"], count, length) for length in (shared + size["own"], shared))
    all_of_it, prefixes, once = (
        least("prefill", case, board) for case in (whole, part, replace(part, batch=size["prompts"]))
    )
    yield Prediction(("baseline",), f"a prefill of {count} x {whole.context}", *together([all_of_it]))
    more = f"what {count} x {whole.context} take more than {count} x {shared}"
    ms = once.ms + all_of_it.ms - prefixes.ms
    bound = together([once, all_of_it, prefixes])[1]
    yield Prediction(("optimized",), f"a prefill of {size['prompts']} x {shared}, and {more}", ms, bound)


def speculative_decoding(board: Board, result: PairResult) -> Iterator[Prediction]:
    size: Any = result.shape
    start, end = size["prompt"], size["prompt"] + size["new"]
    target, draft = (bf16(size[which], 1, start) for which in ("target", "draft"))
    first, guessed = (least("prefill", case, board) for case in (target, draft))
    plain = [first, *decoding(target, board, range(start + 1, end))]
    yield Prediction(("baseline",), f"a prefill of 1 x {start}, {size['new'] - 1} decode steps", *together(plain))
    middle = (start + end) // 2
    check = least("decode", replace(target, batch=PROPOSED + 1, context=middle), board)
    guesses = decoding(draft, board, [middle] * PROPOSED)
    rounds = (size["new"] - 1) * (1 - AGREED) / (1 - AGREED ** (PROPOSED + 1))
    prefills, (a_round, bound) = first.ms + guessed.ms, together([check, *guesses])
    a_round_is = f"{PROPOSED} decode steps of the draft, one of the target with {PROPOSED + 1}"
    yield Prediction(
        ("optimized",), f"two prefills, {rounds:.1f} rounds: {a_round_is}", prefills + rounds * a_round, bound
    )


def decode_8b(board: Board, result: PairResult) -> Iterator[Prediction]:
    size: Any = result.shape
    case, contexts = bf16(MODELS[size["model"]], 1, 1), range(1, size["new"] + 1)
    said = f"{size['new']} decode steps"
    bf16_floors, packed_bytes = decoding(case, board, contexts), WEIGHT_BYTES["int4"]
    yield Prediction(("baseline", "compile", "graph", "peer cublas", "optimized"), said, *together(bf16_floors))
    narrow = replace(case, weights="int4", read_bytes=packed_bytes * (case.model.linear + case.model.head))
    packed = f"{said} of {bytes_text(narrow.read_bytes or 0)}, the head packed too"
    yield Prediction(("int4",), packed, *together(decoding(narrow, board, contexts)))


def train_step_8b(board: Board, result: PairResult) -> Iterator[Prediction]:
    yield trained(
        ("baseline", "fused_adamw", "compile", "selective_checkpoint", "peer compile", "optimized"), board, result
    )


def train_step_fp8(board: Board, result: PairResult) -> Iterator[Prediction]:
    yield trained(("baseline",), board, result)
    yield trained(("peer torchao", "optimized"), board, result, "fp8", ", head and attention in fp8 too")


def trained(
    variants: tuple[str, ...], board: Board, result: PairResult, arithmetic: str = "bf16", more: str = ""
) -> Prediction:
    size: Any = result.shape
    case = replace(bf16(MODELS[size["model"]], size["batch"], size["length"]), arithmetic=arithmetic)
    said = f"a training step of {size['batch']} x {size['length']}; no optimizer{more}"
    return Prediction(variants, said, *together([least("train", case, board)]))


PAIRS: dict[str, Callable[[Board, PairResult], Iterator[Prediction]]] = {
    "ch15:kv_cache": kv_cache,
    "ch15:paged_kv": paged_kv,
    "ch15:continuous_batching": continuous_batching,
    "ch16:prefix_cache": prefix_cache,
    "ch16:speculative_decoding": speculative_decoding,
    "ch20:decode_8b": decode_8b,
    "ch20:train_step_8b": train_step_8b,
    "ch20:train_step_fp8": train_step_fp8,
}

# The page.


def board_of(survey: store.Survey) -> Board:
    """The GPU by the peaks that were measured on it. Raises ValueError for one without a datasheet."""
    if (sheet := datasheet(survey.device)) is None:
        raise ValueError(f"{survey.device} has no datasheet, and so no size of its memory")
    peaks = store.peaks_of(survey)
    rates = {name: peak for name, peak in peaks.values.items() if name in RATES}
    return Board(survey.device, sheet.memory_gb * 1e9, peaks.values["hbm"], rates, peaks.source)


def rows(folder: Path, root: Path) -> list[Row]:
    """Every prediction beside what was measured, of the pairs that are expected on the GPU of the folder's peaks."""
    board = board_of(_survey(folder))
    kept, found = expected(root, board.name), []
    for key, predict in PAIRS.items():
        if key not in kept:
            continue
        result = kept[key].result
        took = {_label(variant): variant for variant in result.variants if variant.status == "measured"}
        for one in predict(board, result):
            found += [Row(key, name, one, _measured(took[name], one, result)) for name in one.variants if name in took]
    return found


def _survey(folder: Path) -> store.Survey:
    if (survey := store.load(folder / PEAKS)) is None:
        raise ValueError(f"{folder} has no {PEAKS}: python -m tools.documentation.peak_results RUN")
    return survey


def _label(variant: VariantResult) -> str:
    return f"peer {variant.label}" if variant.role == "peer" else variant.label


def _measured(variant: VariantResult, prediction: Prediction, result: PairResult) -> float | None:
    """Milliseconds on the headline clock; of a metric in MB, bytes."""
    if prediction.metric:
        megabytes = variant.why.metrics.get(prediction.metric) if variant.why else None
        return None if megabytes is None else megabytes * 1e6
    spread = variant.device if result.clock == "device" else variant.wall
    return spread.median / 1e3 if spread else None


def current(text: str, folder: Path, root: Path) -> str:
    """The page's text with its table as the stored files make it. Raises ValueError without markers."""
    board = board_of(_survey(folder))
    arithmetic, memory = figure(board.rates["bf16"], "FLOP/s"), figure(board.bandwidth, "B/s")
    peaks = f"{board.name}: {memory} and {arithmetic} in bf16, {board.source}."
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, rows(folder, root))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return replace_between_markers(text, f"{escaped(peaks)}\n\n{table}", BEGIN, END)


def _cells(row: Row) -> tuple[str, ...]:
    one = row.prediction
    shown = bytes_text if one.metric else time_text
    floor_text, took = ("" if value is None else shown(value) for value in (one.least, row.measured))
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
    doubt = " FASTER THAN PHYSICS ALLOWS" if row.ratio is not None and row.ratio < 1 / (1 + MARGIN) else ""
    told = (row.pair, row.variant, one.source, floor_text, one.bound, took, ratio + doubt)
    return tuple(map(escaped, told))


def main(root: Path) -> None:
    for page in sorted((root / RESULTS).glob(f"*/{PAGE}")):
        write(page, current(page.read_text(), page.parent, root))
        print(page)


if __name__ == "__main__":
    Arguments("estimate_results", __doc__).parse_args()
    main(ROOT)
