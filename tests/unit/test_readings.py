"""What `list` keeps of pair files is what discovery reads of them, and is read again once a file changes."""

import json
import os
import time
from pathlib import Path

import pytest

from common.python.corpus import readings
from common.python.corpus.discovery import Read, find_pairs
from common.python.corpus.readings import NAME, Readings
from common.python.corpus.targets import TargetError

ROOT = Path(__file__).parents[2]
LATER_NS = time.time_ns() + 3600 * 10**9  # when every file here has long been as it is
PAIR = '"""A {}."""\nfrom x import y\nrequires = needs(sm=90, modules=["liger_kernel"])\nworkload = Workload(gpus=2)\n'


def listed(root: Path, folder: Path, now_ns: int = LATER_NS) -> list[object]:
    keeper = Readings(folder, now_ns)
    pairs: list[object] = list(find_pairs(root, keeper.read))
    keeper.keep()
    return pairs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "root" / "ch01" / "baseline_x.py"
    path.parent.mkdir(parents=True)
    path.write_text(PAIR.format("loop"))
    return path


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that are parsed from now on."""
    parsed: list[str] = []
    real: Read = readings.read_file

    def read_file(path: Path) -> object:
        parsed.append(path.name)
        return real(path)

    monkeypatch.setattr(readings, "read_file", read_file)
    return parsed


def test_every_pair_is_listed_alike_whether_it_was_kept_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = find_pairs(ROOT)
    assert listed(ROOT, tmp_path) == read
    parsed = counted(monkeypatch)
    assert listed(ROOT, tmp_path) == read
    assert parsed == []


def test_pairs_are_chosen_with_what_was_kept_of_their_tree(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(file, ns=(0, 0))
    parsed = counted(monkeypatch)
    for _ in range(2):
        assert readings.choose(file.parents[1], ["ch01:x"]) == find_pairs(file.parents[1])
    assert parsed == ["baseline_x.py"]
    with pytest.raises(TargetError, match="is not a pair"):
        readings.choose(file.parents[1], ["ch01:y"])


def test_a_file_that_changed_is_read_again(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(file.parents[1], tmp_path)
    file.write_text(PAIR.format("pass"))  # of the same length
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    parsed = counted(monkeypatch)
    [pair] = listed(file.parents[1], tmp_path)
    assert parsed == ["baseline_x.py"]
    assert pair == find_pairs(file.parents[1])[0]


def test_a_file_of_another_size_is_read_again_though_its_time_is_the_same(file: Path, tmp_path: Path) -> None:
    listed(file.parents[1], tmp_path)
    before = file.stat().st_mtime_ns
    file.write_text(PAIR.format("longer loop"))
    os.utime(file, ns=(0, before))
    assert listed(file.parents[1], tmp_path) == find_pairs(file.parents[1])


def test_a_file_that_has_only_just_changed_is_not_kept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_ns = file.stat().st_mtime_ns
    parsed = counted(monkeypatch)
    for seconds, times in ((1, 1), (1, 2), (3, 3), (3, 3)):
        listed(file.parents[1], tmp_path, changed_ns + seconds * 10**9)
        assert len(parsed) == times


@pytest.mark.parametrize("wrong", ["def (:\n", "x = 1\n", '"""A loop."""\nrequires = needs(sm="90")\n'])
def test_what_is_wrong_with_a_file_is_read_again(wrong: str, file: Path, tmp_path: Path) -> None:
    file.write_text(wrong)
    for _ in range(2):
        assert listed(file.parents[1], tmp_path) == find_pairs(file.parents[1])


def test_what_json_would_change_is_not_kept(file: Path, tmp_path: Path) -> None:
    file.write_text('"""A loop."""\nworkload = Workload(name=b"x")\n')
    for _ in range(2):
        [pair] = listed(file.parents[1], tmp_path)
        assert pair == find_pairs(file.parents[1])[0]


@pytest.mark.parametrize("broken", ["", "{", "[]", "3", '{"by": 1, "files": []}', '{"files": {}}'])
def test_a_broken_file_of_readings_is_as_none(broken: str, file: Path, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(broken)
    assert listed(file.parents[1], tmp_path) == find_pairs(file.parents[1])
    assert json.loads((tmp_path / NAME).read_text())["files"]


def test_readings_of_other_code_are_read_again(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(file.parents[1], tmp_path)
    kept = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(kept | {"by": [time + 1 for time in kept["by"]]}))
    parsed = counted(monkeypatch)
    listed(file.parents[1], tmp_path)
    assert parsed == ["baseline_x.py"]


def test_where_nothing_can_be_written_pairs_are_listed_all_the_same(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert listed(file.parents[1], tmp_path / "taken" / "build") == find_pairs(file.parents[1])
