"""What several tests of proofs begin with."""

from pathlib import Path

import pytest
from small_workload import Prepares, preparer


@pytest.fixture
def prepared(tmp_path: Path) -> Prepares:
    return preparer(tmp_path)
