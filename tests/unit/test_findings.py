from pathlib import Path

import pytest

from common.python.base.machine import cpu_list
from common.python.doctor.check_result import text


@pytest.mark.parametrize(
    ("written", "cpus"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0-1,32-33\n", {0, 1, 32, 33})],
)
def test_a_list_of_cpus(written: str, cpus: set[int]) -> None:
    assert cpu_list(written) == cpus


def test_a_file_that_is_no_utf_8_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b" GPU \xff\n")
    assert text(tmp_path / "name") == "GPU �"
