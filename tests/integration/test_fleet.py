"""A suite on a Ray cluster of three nodes, all on this host's CPU and with pretended GPUs."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_tree import Tree, cli, until
from test_cli import CLI, ROOT

from common.python.report.artifacts import read_run

pytest.importorskip("ray", reason="needs Ray: pip install -e '.[ray]'")
from ray.cluster_utils import Cluster

WAITS = """
import os, time
from pathlib import Path

def prepare(a):
    Path({place!r}, f"{{os.getpid()}}").write_text(os.environ["TMPDIR"])
    while Path({place!r}, "hold").exists():
        time.sleep(0.1)

    def step():
        return a * 2

    return step
"""
Nodes = tuple[Cluster, dict[str, Any]]
KEYS = ["ch01:doubles", "ch01:halves", "ch02:trebles", "ch02:wholes"]
LIMIT_S = 240.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "hold").touch()
    return tmp_path / "seen"


@pytest.fixture
def waiting(tree: Tree, place: Path) -> Tree:
    for key in KEYS:
        tree.pair(key, baseline=WAITS.format(place=str(place)))
    return tree


def add(cluster: Cluster, folder: Path, **more: str) -> Any:
    """A node whose temporary files are its own; of these its tasks tell where they are."""
    folder.mkdir()
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"TMPDIR": str(folder), "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "0", **more}
    return cluster.add_node(num_cpus=2, num_gpus=1, resources={"timing": 1}, env_vars=env)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A head without GPUs, and three nodes by their folders."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # of which a pretended GPU must be one
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        yield made, {str(tmp_path / name): add(made, tmp_path / name) for name in ("one", "two", "three")}
    finally:
        made.shutdown()


def start(cluster: Cluster, tree: Tree) -> subprocess.Popen[str]:
    words = ["run", "all", "--ray", cluster.address, "--iterations", "1", "--seed", "7", "--root", tree.root]
    command = [*CLI, *map(str, words), "--artifacts-dir", str(tree.artifacts)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def at_work(tree: Tree) -> list[int]:
    """Processes of this CLI that measure a pair of the tree, other than the driver."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(tree.root).encode() in words and b"--json" in words:
            found.append(int(folder.name))
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_lost_node_and_a_killed_worker_lose_no_pair(cluster: Nodes, waiting: Tree, place: Path) -> None:
    made, nodes = cluster
    driver = start(made, waiting)
    until(lambda: len({file.read_text() for file in place.glob("[0-9]*")}) == 3 or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()
    by_node = {
        Path(f"/proc/{pid}/environ").read_bytes().partition(b"TMPDIR=")[2].split(b"\0")[0].decode(): pid
        for pid in at_work(waiting)
    }
    lost, *others = nodes
    made.remove_node(nodes[lost])
    os.kill(parent(by_node[others[0]]), signal.SIGKILL)  # Ray's worker, under which the command runs
    (place / "hold").unlink()
    out, err = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, out + err
    run = read_run((waiting.artifacts / "latest").resolve())
    assert [pair.key for pair in run.summary.pairs] == KEYS
    assert (run.summary.complete, len(run.parts), out.count("ch01:halves  ")) == (True, 4, 1)
    until(lambda: not at_work(waiting))
    assert [path.name for path in waiting.artifacts.iterdir() if path.name.startswith("parts")] == []


def test_a_node_that_cannot_write_gets_no_second_pair(cluster: Nodes, waiting: Tree, place: Path) -> None:
    (place / "hold").unlink()
    full, *_ = cluster[1]
    Path(full, f"benchmark-fleet-{os.getuid()}").write_text("in the way of its results")
    out, err = (driver := start(cluster[0], waiting)).communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, out + err
    run = read_run((waiting.artifacts / "latest").resolve())
    assert ([pair.key for pair in run.summary.pairs], run.summary.not_run) == (KEYS, {})
    assert full not in {file.read_text() for file in place.glob("[0-9]*")}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_driver_that_ends_leaves_no_process(
    cluster: Nodes, waiting: Tree, place: Path, number: int, code: int
) -> None:
    driver = start(cluster[0], waiting)
    until(lambda: any(place.glob("[0-9]*")) or driver.poll() is not None)
    driver.send_signal(number)
    assert driver.wait(timeout=LIMIT_S) == code, driver.communicate()
    until(lambda: not at_work(waiting))


def test_a_node_with_another_version_is_refused_before_the_first_task(
    cluster: Nodes, waiting: Tree, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "other" / "pydantic-0.1.dist-info").mkdir(parents=True)
    (tmp_path / "other" / "pydantic-0.1.dist-info" / "METADATA").write_text("Name: pydantic\nVersion: 0.1\n")
    add(cluster[0], tmp_path / "four", PYTHONPATH=os.pathsep.join([str(tmp_path / "other"), os.environ["PYTHONPATH"]]))
    driver = start(cluster[0], waiting)
    err = driver.communicate(timeout=LIMIT_S)[1]
    assert (driver.returncode, "is not as the driver: pydantic 2" in err, [*place.glob("[0-9]*")]) == (2, True, []), err


def test_without_ray_it_says_what_to_install(waiting: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = cli("run", "all", "--ray", "local", "--root", waiting.root, "--artifacts-dir", waiting.artifacts)
    assert (done.returncode, "pip install -e '.[ray]'" in done.stderr) == (2, True)
