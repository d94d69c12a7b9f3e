"""What a user may name, and what reading the files of a tree tells about its pairs without importing any of them."""

import re
from pathlib import Path

import pytest
from synthetic_run import written

from common.python.corpus.discovery import Pair, Variant, choose, find_pairs, read_variant
from common.python.corpus.targets import Folder, TargetError, homes, parse
from common.python.requirements import Requirements, needs

SENTENCE = '"""Each thread copies one element."""\n'


def read(root: Path, text: str, name: str = "ch07/baseline_x.py") -> Variant:
    written(root, {name: text})
    return read_variant(root / name, Folder(root / "ch07", "ch07"))


@pytest.fixture
def pairs(tmp_path: Path) -> list[Pair]:
    names = ["ch02/baseline_copy", "ch07/baseline_transpose", "ch07/optimized_transpose", "ch07/baseline_reduce"]
    written(tmp_path, {f"{name}.py": SENTENCE for name in names})
    return find_pairs(tmp_path)


def test_pairs_come_by_chapter_and_name_with_the_baseline_first_then_rungs_then_peers(tmp_path: Path) -> None:
    names = ["peer_b__cub", "optimized_b__wide", "optimized_b", "baseline_b", "baseline_a", "helper", "__init__"]
    written(tmp_path, {f"ch10/{name}.py": SENTENCE for name in names})
    written(tmp_path, {"ch02/baseline_z.py": SENTENCE, "ch21/baseline_y.py": SENTENCE, "other/baseline_y.py": SENTENCE})
    found = find_pairs(tmp_path)
    assert [pair.key for pair in found] == ["ch02:z", "ch10:a", "ch10:b"]
    variants = found[2].variants
    assert [variant.name for variant in variants] == ["baseline_b", "optimized_b", "optimized_b__wide", "peer_b__cub"]
    assert [variant.label for variant in variants] == ["baseline", "optimized", "wide", "cub"]
    assert [variant.role for variant in variants] == ["baseline", "optimized", "optimized", "peer"]
    assert [variant.module for variant in variants][:1] == ["ch10.baseline_b"]
    assert found[2].baseline is variants[0]


def test_rungs_come_in_the_order_that_the_baseline_states(tmp_path: Path) -> None:
    ordered = 'from w import Workload\nworkload = Workload(rungs="wide tall")\n'
    names = ["peer_b__a", "optimized_b__wide", "optimized_b__tall", "optimized_b"]
    written(tmp_path, {"ch10/baseline_b.py": SENTENCE + ordered} | {f"ch10/{name}.py": SENTENCE for name in names})
    (pair,) = find_pairs(tmp_path)
    assert [variant.label for variant in pair.variants] == ["baseline", "optimized", "wide", "tall", "a"]


def test_reading_a_file_does_not_run_it(tmp_path: Path) -> None:
    variant = read(tmp_path, '"""Rows are copied whole.\n\nThe rest."""\nraise SystemExit')
    assert (variant.problem, variant.sentence) == (None, "Rows are copied whole.")


@pytest.mark.parametrize(
    ("imports", "kinds"),
    [
        ("import torch", ("PyTorch",)),
        ("from common.python.cuda import load_cuda", ("CUDA",)),
        ("import triton.language as tl", ("Triton",)),
        ("from benchmark_harness import (\n    Step,\n    load_cuda,\n)", ("CUDA",)),
        ("def prepare():\n    import triton\n    from common.python.cuda import load_cuda", ("CUDA", "Triton")),
    ],
)
def test_the_kind_follows_from_the_imports(imports: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    assert read(tmp_path, SENTENCE + imports).kinds == kinds


@pytest.mark.parametrize(
    ("line", "required"),
    [
        ("", needs()),
        (
            "requires = needs(sm=90, modules=['liger_kernel'], memory_gib=40)",
            needs(sm=90, modules=["liger_kernel"], memory_gib=40),
        ),
        ("requires: Requirements = needs(sm=90)", needs(sm=90)),
        ("from common.python.cuda import load_cuda", needs(gpus=1)),
        ("from common.python.cuda import load_cuda\nrequires = needs(sm=90)", needs(sm=90, gpus=1)),
        ("from common.python.cuda import load_cuda\nrequires = needs(gpus=2)", needs(gpus=2)),
    ],
)
def test_needs_are_read_from_the_source_and_cuda_needs_a_gpu(line: str, required: Requirements, tmp_path: Path) -> None:
    variant = read(tmp_path, SENTENCE + line)
    assert variant.required == required
    assert variant.problem is None


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("needs(sm='hopper')", "needs(sm='hopper') must be a whole number"),
        ("needs(colour='red')", "unexpected keyword argument 'colour'"),
        ("needs(gpus=True)", "needs(gpus=True) must be a whole number"),
        ("needs(memory_gib='40')", "needs(memory_gib='40') must be a number of GiB"),
        ("needs(tools='nsys')", "needs(tools='nsys') must be a list of words"),
        ("needs(tools=[1])", "needs(tools=[1]) must be a list of words"),
    ],
)
def test_needs_of_a_wrong_type_or_name_are_a_problem_that_says_which(call: str, why: str, tmp_path: Path) -> None:
    problem = read(tmp_path, f"{SENTENCE}requires = {call}").problem or ""
    assert problem.startswith(f"ch07/baseline_x.py:2: `requires = {call}`: ")
    assert why in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    "line",
    [
        "requires = needs(sm=LEAST)",
        "requires = needs(**COMMON)",
        "requires = needs(90)",
        "requires = NEEDS",
        "requires = also = needs(sm=90)",
        "requires, also = (needs(sm=90), 1)",
        "from ch07.baseline_y import requires",
        "requires = needs(gpus=1)\nrequires = needs(sm=90)",
        "if True:\n    requires = needs(sm=90)",
        "def requires():\n    pass",
    ],
)
def test_needs_that_cannot_be_read_are_a_problem_that_says_what_would_be_right(line: str, tmp_path: Path) -> None:
    problem = read(tmp_path, f"{SENTENCE}{line}").problem or ""
    assert problem.startswith(f"ch07/baseline_x.py:{2 + line.count(chr(10) + 'requires')}: `")
    assert problem.endswith("` must be `requires = needs(...)`, once, with literal keyword arguments")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"# coding: klingon\n", "ch07/baseline_x.py:1: "),
        (b'"""Rows."""\n\nx = "\xff"\n', "ch07/baseline_x.py:3: "),
    ],
)
def test_a_file_that_is_no_text_is_a_problem_with_its_line(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "ch07" / "baseline_x.py"
    path.parent.mkdir()
    path.write_bytes(content)
    (pair,) = find_pairs(tmp_path)
    assert (pair.variants[0].problem or "").startswith(problem)


BOTH = ["baseline_transpose", "optimized_transpose"]


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        (["ch07"], {"ch07:reduce": ["baseline_reduce"], "ch07:transpose": BOTH}),
        (["ch7:transpose", " ch2\n", "ch07:transpose"], {"ch07:transpose": BOTH, "ch02:copy": ["baseline_copy"]}),
        (["ch07/optimized_transpose.py"], {"ch07:transpose": ["optimized_transpose"]}),
        (["ch07:transpose", "ch07/optimized_transpose.py"], {"ch07:transpose": BOTH}),
        (["ch07/baseline_transpose.py", "ch07/optimized_transpose.py"], {"ch07:transpose": BOTH}),
    ],
)
def test_the_pairs_named_are_selected_once_in_the_order_in_which_they_are_named(
    words: list[str], selected: dict[str, list[str]], pairs: list[Pair], tmp_path: Path
) -> None:
    found = choose(tmp_path, words)
    told = [(pair.key, [variant.name for variant in pair.variants]) for pair in found]
    assert told == [*selected.items()]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("transpos", "; did you mean ch07:transpose?"),
        ("ch07-transpose", "; did you mean ch07:transpose?"),
        ("ch07/optimised_transpose.py", "; did you mean ch07/optimized_transpose.py?"),
        ("Ch7:Transpose", "; did you mean ch07:transpose?"),
        ("ch07/", "; did you mean ch07?"),
        ("ALL", "; did you mean all?"),
        ("softmax", "such as ./kernels"),
    ],
)
def test_a_word_of_no_known_form_is_refused_with_the_pair_that_it_looks_like(
    word: str, hint: str, pairs: list[Pair], tmp_path: Path
) -> None:
    with pytest.raises(TargetError, match="is not a target: write ch07") as refused:
        choose(tmp_path, ["ch07", word])
    assert str(refused.value).endswith(hint)


def test_a_name_or_a_number_is_enough_where_it_is_the_only_one(pairs: list[Pair], tmp_path: Path) -> None:
    assert [pair.key for pair in choose(tmp_path, ["transpose"])] == ["ch07:transpose"]
    assert {pair.chapter for pair in choose(tmp_path, ["7"])} == {"ch07"}
    written(tmp_path, {"ch09/baseline_transpose.py": SENTENCE})
    with pytest.raises(TargetError, match="'transpose' is a pair of ch07 and ch09: write ch07:transpose"):
        choose(tmp_path, ["transpose"])


def test_a_path_names_a_folder_of_ones_own_and_reads_the_same_from_anywhere(
    pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, {f"any/my kernels/{role}_x.py": SENTENCE for role in ("baseline", "optimized")})
    written(tmp_path, {"other/my kernels/baseline_x.py": SENTENCE, "ch08/baseline_y.py": SENTENCE, "empty/a.py": ""})
    monkeypatch.chdir(tmp_path / "any")
    for word in ("./my kernels", "my kernels:x", "../any/my kernels/", "./my kernels/optimized_x.py"):
        (pair,) = choose(tmp_path, [word])
        assert pair.key == "my_kernels:x"
        assert pair.variants[-1].module == "optimized_x", "its files import their neighbours"
        target = parse(word, tmp_path)
        absolute = str(target)
        assert absolute.startswith(f"{tmp_path}/any/my kernels")
        assert parse(absolute, tmp_path) == target
        assert homes(tmp_path, [absolute])["my_kernels"] == tmp_path / "any" / "my kernels"
    assert [pair.key for pair in choose(tmp_path, ["../ch08", "my kernels"])] == ["ch08:y", "my_kernels:x"]
    assert [pair.key for pair in choose(tmp_path / "any", ["../ch08"])] == ["folder_ch08:y"], "it is no chapter there"
    refused = {
        "./nowhere": "nowhere' is not a target: there is no such folder; write ch07",
        "../empty": "empty has no pairs: a pair is baseline_x.py and optimized_x.py",
        "../empty/a.py": "'../empty/a.py' is no file of a pair",
        "./my kernels:z": "my_kernels:z is not a pair; did you mean my_kernels:x?",
        "../other/my kernels": "are both called my_kernels in results",
    }
    for word, right in refused.items():
        with pytest.raises(TargetError, match=re.escape(right)):
            choose(tmp_path, ["./my kernels", word])
