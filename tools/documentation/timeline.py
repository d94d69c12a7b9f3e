"""A picture of what the GPU did over time, baseline above optimized, from a run with `--profile`.

Such a run keeps a Chrome trace of a step of each variant. Exit codes: 0; 2 usage, or no such traces.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from common.python.base.journal import write
from common.python.report.charts import standing_alone, timeline_chart

SIDES = ("baseline", "optimized")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tools.documentation.timeline", description=__doc__)
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("pair", help="such as ch11:copy_compute_pipeline")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    asked = parser.parse_args(sys.argv[1:] if words is None else words)
    chapter, _, name = asked.pair.partition(":")
    folder = asked.run / f"{chapter}_{name}" / "profiles"
    try:
        texts = {side: (folder / f"{side}_{name}.trace.json").read_text() for side in SIDES}
    except FileNotFoundError as error:
        parser.error(f"{error.filename} is not there: measure {asked.pair} with --profile")
    steps = {side: json.loads(text)["traceEvents"] for side, text in texts.items()}
    if not any(event.get("cat") == "kernel" for found in steps.values() for event in found):
        parser.error(f"{folder} has traces without a kernel: measure {asked.pair} on a GPU")
    write(asked.picture, standing_alone(timeline_chart(steps)))


if __name__ == "__main__":
    main()
