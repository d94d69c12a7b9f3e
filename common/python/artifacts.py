"""A run's folder read back: what reports and comparisons are made of, on whatever machine."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from common.python import peak_store
from common.python.performance_targets import Peaks, datasheet_peaks
from common.python.results import SCHEMA_VERSION, Model, PairResult, Summary

Read = TypeVar("Read", bound=Model)


@dataclass(frozen=True)
class Run:
    """One run: its summary, whose pairs have their samples again, and the peaks that its limits come from."""

    folder: Path
    summary: Summary
    peaks: Peaks | None


def read_run(folder: Path) -> Run:
    """Read the folder that `run` left. Raises ValueError, in one line, where it is no run's or is damaged."""
    if not (folder / "summary.json").is_file():
        right = "name the folder of a finished run, such as artifacts/20260101T000000.000000Z"
        raise ValueError(f"{folder} has no summary.json: {right}")
    summary = read_model(folder / "summary.json", Summary)
    if summary.schema_version != SCHEMA_VERSION:
        raise ValueError(f"{folder} has schema version {summary.schema_version}: this harness reads {SCHEMA_VERSION}")
    pairs = [_with_samples(folder, pair) for pair in summary.pairs]
    summary = summary.model_copy(update={"pairs": pairs})
    return Run(folder, summary, _peaks(folder, summary))


def read_model(path: Path, model: type[Read]) -> Read:
    """A file of the schema. Raises ValueError naming the file and the first thing that is wrong with it."""
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path} is damaged or foreign: {where + ': ' * bool(where)}{first['msg']}") from error


def _with_samples(folder: Path, pair: PairResult) -> PairResult:
    """The pair as its own file has it. The summary leaves out the samples and nothing else."""
    path = folder / f"{pair.chapter}_{pair.name}" / "results" / "benchmark_test_results.json"
    found = read_model(path, PairResult)
    if found.model_copy(update={"blocks": []}) != pair:
        raise ValueError(f"{path} is not of the run that {folder / 'summary.json'} sums up")
    return found


def _peaks(folder: Path, summary: Summary) -> Peaks | None:
    """The peaks that were kept with the run, as old as they were then; for a run without, those of the datasheet."""
    if survey := peak_store.load(folder / "peaks.json"):
        return peak_store.peaks_of(survey, datetime.fromisoformat(summary.manifest.started))
    devices = [pair.device for pair in summary.pairs if pair.device]
    return datasheet_peaks(devices[0]) if devices else None
