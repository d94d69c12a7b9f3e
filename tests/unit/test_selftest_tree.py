"""The trees that selftest lays out: ordinary pairs, whose comparisons share no variant."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from common.python.base.results import CONTROL
from common.python.corpus.discovery import find_pairs
from common.python.corpus.targets import pair_name
from tools.selftest.tree import CHAPTERS, OWN, PAUSED, PLANTED, SUBJECTS, lay_lanes
from tools.selftest.truth import SPIN_US

ALL = [*SUBJECTS, PLANTED, PAUSED]
ENDS = (("baseline", ""), ("optimized", ""), ("optimized", "__lane1"))


@pytest.mark.parametrize("baseline", ALL, ids=lambda path: path.stem)
def test_every_subject_exists_and_is_laid_out_as_a_sound_pair(baseline: Path, tmp_path: Path) -> None:
    laid = lay_lanes(tmp_path, baseline, [0.0, 0.0])
    names = [variant.name for variant in laid.pair.variants]
    assert names == [f"{start}_{pair_name(baseline.stem)}{end}" for start, end in ENDS]
    assert [variant.problem for variant in laid.pair.variants] == [None] * 3
    assert len({variant.required.sm for variant in laid.pair.variants}) == 1, "a twin needs what its baseline needs"
    assert find_pairs(tmp_path) == [laid.pair]


def test_no_variant_is_in_two_lanes_and_the_control_is_in_one(tmp_path: Path) -> None:
    laid = lay_lanes(tmp_path, PLANTED, [0.005, 0.01, 0.02, 0.05], lever=0.2)
    sides = [side for lane in laid.lanes for side in (lane.above, lane.below)]
    assert len(sides) == len(set(sides)) == 8
    assert laid.lanes[0].above == "baseline_planted"
    assert laid.lanes[1].above == CONTROL
    assert {*sides, "optimized_planted__lever"} == {v.name for v in laid.pair.variants} | {CONTROL}
    assert (laid.lever.above, laid.lever.planted) == ("baseline_planted", 0.2)


def test_the_spin_that_is_promised_is_the_one_that_its_kernel_does() -> None:
    statements = ast.parse((OWN / "ch01" / "baseline_spin.py").read_text()).body
    assert f"SPIN_US = {SPIN_US:.0f}" in map(ast.unparse, statements)


def test_the_parent_imports_neither_torch_nor_a_pair() -> None:
    code = "import sys, tools.selftest.command; print({name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHAPTERS, capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert "pydantic" in loaded
    assert not loaded & {"torch", "triton", "ch01"}
