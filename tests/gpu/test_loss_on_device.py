"""A loss of 3% in real kernels is called a regression on the GPU that was measured, and a further run is not."""

import shutil
from pathlib import Path

from common.python.regress.check import hold_run, median_us
from common.python.regress.environment import sm_mhz
from common.python.regress.runs import expectations_of
from common.python.report.artifacts import Run, read_run
from common.python.run.options import Options
from common.python.run.suite import open_suite

ROOT = Path(__file__).resolve().parents[2]
PAIRS = {"ch02": "tensor_core_gemm", "ch07": "strided_copy", "ch09": "add_rmsnorm"}
RUNS, LOSS, GAP_US = 3, 0.03, 1.0  # a GPU needs the last between two kernels
PLANTED = """

import functools
import torch


@functools.wraps(honest)
def prepare(**inputs):
    step = honest(**inputs)

    def slowed():
        torch.cuda._sleep({cycles})
        return step()

    return slowed
"""


def lay(root: Path) -> None:
    """The chapters' baselines and optimized variants, and nothing beside them."""
    for chapter, name in PAIRS.items():
        folder = root / chapter
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        for side in ("baseline", "optimized"):
            for path in (ROOT / chapter).glob(f"{side}_{name}.*"):
                shutil.copy(path, folder)


def plant(root: Path, honest: Run) -> None:
    """Have each optimized variant wait for so many cycles first that it takes `LOSS` of its speedup."""
    for pair in honest.summary.pairs:
        us, mhz = median_us(pair, pair.headline), sm_mhz(pair.blocks)
        assert us is not None
        assert mhz is not None
        path = root / pair.chapter / f"optimized_{pair.name}.py"
        text = path.read_text().replace("def prepare(", "def honest(")
        path.write_text(text + PLANTED.format(cycles=round((us * LOSS / (1 - LOSS) - GAP_US) * mhz)))


def run(root: Path, artifacts: Path) -> Run:
    keys = [f"{chapter}:{name}" for chapter, name in PAIRS.items()]
    suite = open_suite(Options(keys, root=root, artifacts_dir=artifacts), lambda phase, result: None)
    suite.run()
    return read_run(suite.folder)


def test_a_loss_of_3_percent_is_called_so_and_a_further_run_is_not(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    lay(root)
    before = [run(root, tmp_path) for _ in range(RUNS)]
    chosen, refused = expectations_of(before, root, provisional=False)
    expected = {one.result.key: one for one in chosen}
    assert len(expected) == len(PAIRS), refused
    further = hold_run(run(root, tmp_path), expected)
    plant(root, before[-1])
    lost = hold_run(run(root, tmp_path), expected)
    for row in (*further, *lost):
        print(row.key, row.status, row.reason)
    assert "regressed" not in [row.status for row in further]
    assert [row.status for row in lost] == ["regressed"] * len(PAIRS)
