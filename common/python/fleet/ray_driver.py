"""A suite on the machines of a Ray cluster: a task is one pair, run by this CLI in a process of its own.

Ray places the tasks, runs those of a lost node again elsewhere, and ends them with the driver. Nothing of that is ours.
"""

import errno
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.python.base import manifest
from common.python.base.reaper import PR_SET_PDEATHSIG, prctl
from common.python.base.results import Manifest
from common.python.base.text import clean
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import Pair
from common.python.fleet.shards import names_of
from common.python.regress.environment import HARNESS
from common.python.report.artifacts import read_run
from common.python.run.resume import of_code
from common.python.run.suite import INTERRUPTED, Show

TIMING = "timing"  # the resource of which each host has one: pairs that are timed end to end take it
RETRIES = 3  # of a pair whose node or process was lost
LOOK_S = 1.0  # between two moments in which Ctrl-C is heard
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
START = f"""`ray start --resources='{{"{TIMING}": 1}}'`"""


@dataclass(frozen=True)
class Landed:
    """What came back for one model of GPU: folders of runs, and the pairs that have none, with why."""

    place: Path
    folders: list[Path] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)


def run_on_ray(
    address: str, root: Path, pairs: Sequence[Pair], words: Sequence[str], parts: Path, show: Show
) -> list[Landed]:
    """Measure each pair once on each model of GPU in the cluster; of each model, what they left under `parts`.

    `words` are the options of `run` for each pair. Ctrl-C and SIGTERM end the tasks, and what has landed is given.
    Raises ValueError for a cluster that cannot be used, or on whose nodes other code is installed.
    """
    with _connected(address) as ray:
        nodes = _usable(ray)
        own = _installed([variant.path for pair in pairs for variant in pair.variants])
        _refuse_other_code(ray, nodes, own)
        measure = ray.remote(max_retries=RETRIES)(_measure)
        names, full = names_of(pairs), set[str]()
        landed = {model: Landed(parts / (model or "host")) for model in _models(nodes)}
        waiting = [(pair, model) for model in landed for pair in pairs]
        at_work = dict[Any, tuple[Pair, str]]()
        try:
            while waiting or at_work:
                for pair, model in waiting:
                    needs = _needs(pair, model, nodes, full)
                    at_work[measure.options(**needs).remote([*names[pair.key], *words], own)] = pair, model
                waiting = []
                for task in ray.wait(list(at_work), timeout=LOOK_S)[0]:
                    pair, model = at_work.pop(task)
                    if node := _land(ray, task, pair, landed[model], show):
                        full.add(node)
                        rest = [other for other in nodes if other["NodeID"] not in full]
                        waiting += [(pair, model)] * bool(rest and model in _models(rest))
        except KeyboardInterrupt:
            for task in at_work:
                ray.cancel(task, force=True)
            for pair, model in (*at_work.values(), *waiting):
                landed[model].not_run[pair.key] = INTERRUPTED
        return list(landed.values())


# On the driver.


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """The module, connected to a cluster; SIGTERM is heard as Ctrl-C is. Raises ValueError where there is none."""
    if importlib.util.find_spec("ray") is None:
        raise ValueError("--ray needs Ray, on each node too: pip install -e '.[ray]'")
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {"resources": {TIMING: 1}, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, **own, **QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        told = clean(str(error))[:200]
        raise ValueError(f"--ray {address}: no cluster answers: {told}; write auto, local or HOST:PORT") from error
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield ray
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)


def _usable(ray: Any) -> list[dict[str, Any]]:
    """The nodes that may get tasks: those with GPUs, if any has one. Raises ValueError for one without its token."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    nodes = [node for node in alive if node["Resources"].get("GPU")] or alive
    for node in nodes:
        if node["Resources"].get(TIMING) != 1:
            raise ValueError(f"node {node['NodeManagerHostname']} has not one resource {TIMING!r}: start it by {START}")
    return nodes


def _refuse_other_code(ray: Any, nodes: Sequence[dict[str, Any]], own: str) -> None:
    """Raises ValueError that names the first node with other sources or versions than the driver, and what differs."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0)(_unlike)
    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    answers = [ask.options(scheduling_strategy=place).remote(own) for place in places]
    for node, answer in zip(nodes, answers):
        try:
            found = ray.get(answer)
        except ray.exceptions.RayError as error:
            found = [f"it cannot run this harness: {_last_line(error)}"]
        if found:
            name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            raise ValueError(f"node {name} is not as the driver: {'; '.join(found)}: give it the driver's checkout")


def _models(nodes: Sequence[dict[str, Any]]) -> list[str]:
    """The models of GPU by Ray's names; an empty name stands for whatever there is, if Ray has none."""
    kind = "accelerator_type:"
    found = {name.removeprefix(kind) for node in nodes for name in node["Resources"] if name.startswith(kind)}
    return sorted(found) or [""]


def _needs(pair: Pair, model: str, nodes: Sequence[dict[str, Any]], full: set[str]) -> dict[str, Any]:
    """What Ray must find for a pair on one node that is not full. For more GPUs than any has, the CLI says so."""
    from ray.util.scheduling_strategies import NodeLabelSchedulingStrategy, NotIn

    most = max(node["Resources"].get("GPU", 0) for node in nodes)
    end_to_end = not most or pair.literals.get("clock") == "end_to_end"
    needs: dict[str, Any] = {"num_gpus": min(pair.gpus, most), "resources": {TIMING: 1} if end_to_end else {}}
    if full:
        needs["scheduling_strategy"] = NodeLabelSchedulingStrategy(hard={"ray.io/node-id": NotIn(*sorted(full))})
    return needs | ({"accelerator_type": model} if model else {})


def _land(ray: Any, task: Any, pair: Pair, to: Landed, show: Show) -> str | None:
    """Keep what a task gave, or say why there is nothing; the node that could not write results, if that is why."""
    folder = to.place / f"{pair.chapter}_{pair.name}"
    try:
        packed = ray.get(task)
    except ray.exceptions.RayError as error:
        to.not_run[pair.key] = _last_line(error)
        cause = getattr(error, "cause", None)
        return cause.filename if isinstance(cause, OSError) else None
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    to.folders.append(folder)
    for result in read_run(folder).summary.pairs:
        show("done", result)
    return None


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return clean(lines[-1] if lines else type(error).__name__)


def _installed(files: Sequence[Path]) -> str:
    """The sources and versions here, as JSON of a manifest."""
    return manifest.collect([], {}, manifest.sources_of(files), None).model_dump_json()


# On a node.


def _unlike(driver: str) -> list[str]:
    """How what is installed here differs from what the driver has, a phrase each."""
    own = Manifest.model_validate_json(driver)
    pairs = [path for path in own.sources if not path.startswith(HARNESS)]
    here = Manifest.model_validate_json(_installed([ROOT / path for path in pairs]))
    others = [path for path in pairs if here.sources.get(path) != own.sources[path]]
    return of_code(own, here) + ([f"{', '.join(others[:3])} differs"] if others else [])


def _measure(words: Sequence[str], driver: str) -> bytes:
    """`run` with these words here; its folder as a tar file. The peaks that it measured stay here for later runs.

    Raises ValueError where other code is installed, OSError with this node's id where no results could be written.
    """
    from ray import get_runtime_context

    if found := _unlike(driver):  # by a node that joined later
        raise ValueError(f"{os.uname().nodename} is not as the driver: {'; '.join(found)}")
    place = Path(tempfile.gettempdir()) / f"benchmark-fleet-{os.getuid()}"
    command = [sys.executable, "-m", "tools.cli.benchmark_cli", "run", "--json", "--artifacts-dir", str(place)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # Ray sets it to 1
    done = subprocess.run(
        [*command, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # it ends with Ray's worker
    )
    try:
        folder = Path(json.loads(done.stdout)["folder"])
    except ValueError:
        told = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        reason = f"{os.uname().nodename} left no results: {told[-1]}"
        raise OSError(errno.EIO, reason, get_runtime_context().get_node_id()) from None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".")
    shutil.rmtree(folder)
    return packed.getvalue()
