"""Every cheat in tests/cheats is refused for the reason it deserves, and its honest twin is accepted."""

import math
import re
from pathlib import Path

import pytest

from common.python.base.results import PairResult, VariantResult
from common.python.corpus.discovery import Pair
from common.python.run.options import Options
from common.python.run.suite import open_suite
from common.python.stats import sampling_plan, timing_sanity
from tools.selftest.tree import lay_cheats

PROBLEMS = Path(__file__).resolve().parents[1] / "cheats" / "ch01"
REFUSED = {  # what the reason must say; alternatives where memory or timing decides which check is first
    "address_cache": "relative error",
    "aliased_input": "shares memory with the input 'a'",
    "constant_output": "relative error",
    "early_result": "relative error",
    "first_call_cache": "relative error",
    "first_calls": "NaN",
    "fitting_tolerance": "relative error",
    "last_file": "second call on the same inputs",
    "lazy_tensor": "may compute when it is read",
    "leftover_buffer": "relative error",
    "lost_row": "elements differ",
    "loose_tolerance": "the tolerance would accept: .*one wrong element",
    "low_precision": "relative error .*e-03",
    "one_element": "one element is off",
    "one_shape": "wrong at test size",
    "overwritten_input": "overwrote the input 'a'",
    "others_file": "elements differ",
    "patched_clock": "importing it replaced time.perf_counter",
    "patched_event": "importing it replaced torch.cuda.Event",
    "patched_harness": "importing it replaced common.python.timing.clock.now_ns",
    "right_sum": "elements differ",
    "side_stream": "relative error|NaN|still being written|escaped",
    "remembered_answer": "remembers answers by the values of its inputs",
    "remembered_checksum": "remembers answers by the values of its inputs",
    "remembered_version": "remembers answers by where inputs lie or how often they were written",
    "skipped_tile": "relative error",
    "stale_checksum": "second call on the same inputs",
    "thread": "relative error|NaN|still being written",
    "timed_calls": "second call on the same inputs|relative error",  # whichever call comes soon after another
    "uninitialised_memory": "relative error|NaN",
    "unflushed_file": "shape \\(0,\\), should be",
    "watched_output": "second call on the same inputs",
    "written_nan": "NaN",
    "wrong_dtype": "dtype float16, should be float32",
    "wrong_shape": "shape .*1\\), should be",
}


@pytest.fixture(autouse=True)
def few_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One before timing, as pairs have that take long to prove at the size that is timed."""
    monkeypatch.setattr(sampling_plan, "ENOUGH", 0.0)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    return {pair.name: pair for pair in lay_cheats(tmp_path_factory.mktemp("cheats"), PROBLEMS)}


def test_every_cheat_is_expected(pairs: dict[str, Pair]) -> None:
    assert pairs.keys() == REFUSED.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_cheat_is_refused_and_its_honest_twin_accepted(
    name: str, pairs: dict[str, Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembers = "remembers" in REFUSED[name]
    if not remembers:  # samples as few as these look slow by chance, and trials take seconds
        monkeypatch.setattr(timing_sanity, "SLOWER", math.inf)
    for _ in range(4 if remembers else 1):  # on a busy machine a memory's lead may drown, and then no number is shown
        rows = {row.label: row for row in run(pairs[name], tmp_path).variants}
        cheat = rows["optimized"]
        if cheat.verdict not in ("too noisy", "inconclusive"):
            break
    if cheat.status == "unsupported":
        pytest.skip(f"{name}: {cheat.reason}")
    assert cheat.status == "failed" or cheat.verdict == "invalid", f"not caught: {cheat}"
    assert cheat.speedup is None
    assert re.search(REFUSED[name], cheat.reason or ""), cheat.reason
    for row in (rows["baseline"], rows["honest"]):
        assert accepted(row) == (name != "loose_tolerance"), row  # a workload that is itself in error


def accepted(row: VariantResult) -> bool:
    """Proven before, while and after it was timed, and judged fit to be shown."""
    moments = {proof.when for proof in row.proofs}
    right = all(proof.reason is None for proof in row.proofs)
    return right and len(moments) == 3 and row.status == "measured" and row.verdict != "invalid"


def run(pair: Pair, folder: Path) -> PairResult:
    """A round of one block, without warm-up: enough for every proof, too few samples for a verdict on noise."""
    asked = {"iterations": 2, "warmup": 0, "seed": 0, "timeout_multiplier": 4.0}
    options = Options([pair.key], pair.folder.root, folder, **asked)
    [result] = open_suite(options, lambda phase, result: None).run().pairs
    return result
