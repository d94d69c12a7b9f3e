"""A folder of one's own, outside the project: written, verified, measured, reported and compared as a chapter is."""

import json
from pathlib import Path

import pytest
from small_tree import cli

from common.python.base.results import Manifest

HELPER = "import torch\n\n\ndef empty_like(a):\n    return torch.empty_like(a)\n"


def invoke(*words: str, code: int = 0) -> str:
    """What the command says, and that it ends with this code."""
    done = cli(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_command_takes_a_folder_outside_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("new", "./kernels:sum")
    (tmp_path / "kernels" / "helper.py").write_text(HELPER)
    optimized = tmp_path / "kernels" / "optimized_sum.py"
    text = optimized.read_text().replace("import torch\n", "import torch\nimport helper\n", 1)
    optimized.write_text(text.replace("torch.empty_like", "helper.empty_like"))
    assert invoke("list", "./kernels").count("kernels:sum\t") == 2
    assert "kernels:sum" in invoke("show", "./kernels")
    assert "torch.add(b, a" in invoke("show", "./kernels:sum")
    (tmp_path / "kernels" / "optimized_sum__latin.py").write_bytes("é".encode("latin-1"))
    assert "torch.add(b, a" in invoke("show", "./kernels:sum")
    (tmp_path / "kernels" / "optimized_sum__latin.py").unlink()
    assert "1 pair in" in invoke("verify", "./kernels")
    invoke("build", "./kernels", "--arch", "sm_80", code=4)  # nothing in it has to be compiled
    how = ("--size", "test", "--iterations", "5", "--history", "kernels.csv")
    runs = ["./kernels"], ["./kernels/baseline_sum.py", "./kernels/optimized_sum.py"]
    told = [invoke("run", *words, *how) for words in runs]
    for said in told:
        assert "kernels:sum" in said
        assert "can be timed here" not in said, "which is about the chapters"
        assert "of 1 pair added to kernels.csv" in said
    noisy = all("0 of 1 pair added" in said for said in told)  # on a busy machine, whose times are not kept
    assert ("page: history.html" in invoke("history", "kernels.csv", code=4 if noisy else 0)) is not noisy
    a, b = sorted(file.parent for file in (tmp_path / "artifacts").glob("2*/summary.json"))
    manifest = Manifest.model_validate_json((a / "manifest.json").read_text())
    assert str(tmp_path / "kernels" / "helper.py") in manifest.sources
    assert manifest.targets == [str(tmp_path / "kernels")]
    (result,) = json.loads((a / "summary.json").read_text())["pairs"]
    assert (result["status"], [row["file"] for row in result["variants"]]) == (
        "measured",
        ["kernels/baseline_sum.py", "kernels/optimized_sum.py"],
    )
    invoke("report", str(a))
    assert "return torch.add(b, a" in (a / "report.html").read_text()
    assert "kernels:sum" in invoke("compare", str(a), str(b))
    monkeypatch.chdir(a)
    assert "1 pair" in invoke("run", "--resume", str(a), *how), "from anywhere"
    (tmp_path / "kernels" / "helper.py").write_text(HELPER + "\n")
    assert "helper.py" in invoke("run", "--resume", str(a), *how), "a neighbour that has changed"


def test_a_fault_in_a_folder_is_told_with_its_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("new", "./kernels:sum")
    assert "verify './two words:sum' " in invoke("new", "./two words:sum")
    optimized = tmp_path / "kernels" / "optimized_sum.py"
    optimized.write_text(optimized.read_text().replace("alpha=2", "alpha=3").replace("from baseline_sum", "from .b"))
    said = invoke("verify", "./kernels", code=1)
    assert "kernels/optimized_sum.py:7: must share its baseline's workload" in said
    assert "`from baseline_sum import workload as workload`" in said
