"""A suite in parts, on as many machines as there are: which pairs a part has, and all parts put together as one run."""

import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeVar

from common.python.base.journal import new_folder, write
from common.python.base.machine import Machine
from common.python.base.results import STANDS_APART, Manifest, PairResult, Summary
from common.python.base.text import counted
from common.python.corpus.discovery import Pair, choose, pairs_in
from common.python.fleet.sentinel import stand_apart
from common.python.peaks import store
from common.python.regress import expectations
from common.python.report.artifacts import Run, read_run
from common.python.run.resume import of_code
from common.python.run.suite import INTERRUPTED, write_result, write_summary

T = TypeVar("T")


def shard_targets(root: Path, words: Iterable[str], shard: str) -> list[str]:
    """The targets of one part of those that words name, "3/8" being the third of eight.

    No pair is split. Parts take about equally long by what the chapters expect, which is all that they depend on.
    Raises ValueError for another form, a part that would have no pairs, and words that name nothing.
    """
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", shard)
    index, count = map(int, found.groups()) if found else (0, 0)
    if not 1 <= index <= count:
        raise ValueError(f"--shard {shard!r} is not I/N with I from 1 to N, such as 3/8")
    pairs = choose(root, words)
    if count > len(pairs):
        raise ValueError(f"--shard {shard}: with {counted(len(pairs), 'pair')} N is at most {len(pairs)}")
    seconds, names = seconds_of(pairs), names_of(pairs)
    longest_first = sorted(pairs, key=lambda pair: -seconds[pair.key])
    own = longest_first[index - 1 :: count]  # dealt in turn, so that no two parts differ by more than the longest pair
    return [word for pair in pairs if pair in own for word in names[pair.key]]


def names_of(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    """The targets that name each of these pairs: its key or, where only some of its files were chosen, those."""
    found = [pair for folder in {pair.folder for pair in pairs} for pair in pairs_in(folder)]
    whole = {pair.key: len(pair.variants) for pair in found}
    names = {}
    for pair in pairs:
        files = [f"{pair.folder}/{variant.name}.py" for variant in pair.variants]
        names[pair.key] = [f"{pair.folder}:{pair.name}"] if len(files) == whole[pair.key] else files
    return names


def seconds_of(pairs: Sequence[Pair]) -> dict[str, float]:
    """What the variants of each pair took to be prepared and called once, by the expectations of any GPU.

    The time of a whole pair goes with it (r = 0.76 on 67 pairs, H200). A pair without an expectation gets the median of
    the others.
    """
    known = defaultdict[str, list[float]](list)
    for folder in {pair.folder for pair in pairs}:
        for path in sorted(folder.path.glob("expectations_*.json")):
            for name, one in expectations.read(path).pairs.items():
                spent = sum((row.prepare_s or 0.0) + (row.first_call_s or 0.0) for row in one.result.variants)
                known[f"{folder.name}:{name}"].append(spent)
    usual = median(map(mean, known.values())) if known else 0.0
    return {pair.key: mean(known.get(pair.key, [usual])) for pair in pairs}


def merge(folders: Sequence[Path], artifacts_dir: Path, not_run: Mapping[str, str] | None = None) -> Path:
    """Put finished runs together into a new one; gives its folder. Each pair keeps what its own run was like.

    `not_run` has pairs without any result, and why. Raises ValueError, in one line, where a pair is in two of the runs,
    where their code, versions or options differ, or where one cannot be read; OSError for a folder that cannot be
    written.
    """
    runs = [read_run(folder) for folder in folders]
    _refuse_what_differs(runs)
    folder = new_folder(artifacts_dir)
    everything = [(run, pair) for run in runs for pair in run.summary.pairs]
    surveys = {place: store.load(place / "peaks.json") for place in {own.origin(pair) for own, pair in everything}}
    notes = stand_apart((pair, own.about(pair), surveys[own.origin(pair)]) for own, pair in everything)
    pairs, origins, numbers = list[PairResult](), dict[str, str](), dict[Path, str]()
    for own, pair in everything:
        name, place = f"{pair.chapter}_{pair.name}", own.origin(pair)
        shutil.copytree(own.folder / name, folder / name)
        kept = [note for note in pair.notes if not note.startswith(STANDS_APART)]
        pairs.append(pair.model_copy(update={"notes": kept + notes.get(pair.key, [])}))
        write_result(folder / name, pairs[-1])
        if place not in numbers:
            numbers[place] = f"runs/{len(numbers) + 1:04}"
            about = own.about(pair).model_copy(update={"sources": {}})  # the merged manifest has those of all
            write(folder / numbers[place] / "manifest.json", about.model_dump_json(indent=1))
            if surveys[place]:
                shutil.copy(place / "peaks.json", folder / numbers[place])
        origins[pair.key] = numbers[place]
    summary = _summary(runs, sorted(pairs, key=lambda pair: pair.key), origins, dict(not_run or {}))
    surveyed = sorted(folder.glob("runs/*/peaks.json"))
    if surveyed and len({pair.device for pair in pairs}) == 1:
        shutil.copy(surveyed[0], folder)
    write(folder / "manifest.json", summary.manifest.model_dump_json(indent=1))
    write_summary(folder, summary)
    return folder


def _refuse_what_differs(runs: Sequence[Run]) -> None:
    first, seen = runs[0], dict[str, Path]()
    for run in runs:
        if found := of_code(first.summary.manifest, run.summary.manifest):
            raise ValueError(f"{first.folder} and {run.folder} do not belong into one run: {'; '.join(found)}")
        for pair in run.summary.pairs:
            if pair.key in seen:
                raise ValueError(f"{pair.key} is in both {seen[pair.key]} and {run.folder}: leave one of them out")
            seen[pair.key] = run.folder


def _summary(
    runs: Sequence[Run], pairs: Sequence[PairResult], origins: dict[str, str], not_run: dict[str, str]
) -> Summary:
    summaries = [run.summary for run in runs]
    started, finished = min(one.manifest.started for one in summaries), max(one.finished for one in summaries)
    for one in summaries:
        not_run |= one.not_run
    shards = [str(shard) for one in summaries if (shard := one.manifest.options.get("shard"))]
    counts = sorted({shard.partition("/")[2] for shard in shards})
    wanted = [f"{index}/{count}" for count in counts for index in range(1, int(count) + 1)]
    not_run |= {f"shard {shard}": "no run of it was named" for shard in wanted if shard not in shards}
    not_run = {key: why for key, why in not_run.items() if key not in origins}
    return Summary(
        manifest=_together(runs),
        finished=finished,
        seconds=(datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds(),
        complete=not not_run,
        interrupted=INTERRUPTED in not_run.values() or any(one.interrupted for one in summaries),
        not_run=not_run,
        origins=origins,
        pairs=[pair.model_copy(update={"blocks": []}) for pair in pairs],
    )


def _together(runs: Sequence[Run]) -> Manifest:
    """What all of them hold in common; of the hosts their number, of the GPUs one of each model."""
    merged = [run.summary.manifest for run in runs]
    alike = _common([one.model_dump(include={"git_commit", "seed", "clocks"}) for one in merged])
    own = [about for run in runs for about in run.parts.values() or [run.summary.manifest]]
    return merged[0].model_copy(
        update={
            "started": min(one.started for one in merged),
            "command": list(sys.argv),
            "options": _common([one.options for one in merged]),
            "targets": list(dict.fromkeys(word for one in merged for word in one.targets)),
            "machine": _machine([one.machine for one in own]),
            "topology": None,
            "git_dirty": any(one.git_dirty for one in merged),
            "sources": {path: digest for one in merged for path, digest in one.sources.items()},
            "environment": _common([one.environment for one in own]),
            **{name: alike.get(name) for name in ("git_commit", "seed", "clocks")},
        }
    )


def _machine(machines: Sequence[Machine]) -> Machine:
    """Several hosts as one: the least of what they have, and each value of what differs."""
    first, (name, *others) = machines[0], dict.fromkeys(one.hostname for one in machines)
    texts: dict[str, Any] = {
        field: ", ".join(dict.fromkeys(text for one in machines if (text := getattr(one, field)))) or None
        for field in ("system", "cpu", "driver", "cuda_driver")
    }
    least: dict[str, Any] = {field: min(getattr(one, field) for one in machines) for field in ("cores", "memory_gib")}
    gpus = list({gpu.name: gpu for one in machines for gpu in one.gpus}.values())
    hosts = name + (f" and {counted(len(others), 'other host')}" if others else "")
    return replace(first, hostname=hosts, gpus=gpus, **texts, **least)


def _common(dicts: Sequence[dict[str, T]]) -> dict[str, T]:
    return {name: value for name, value in dicts[0].items() if all(one.get(name) == value for one in dicts)}
