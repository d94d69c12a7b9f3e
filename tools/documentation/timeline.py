"""A picture of what the GPU did over time, baseline above optimized.

    python -m tools.documentation.timeline RUN PAIR SVG

RUN is the folder of a run with `--profile`, which keeps a Chrome trace of a step of each variant.
"""

import json
import sys
from pathlib import Path
from typing import Any

from common.python.report.charts import standing_alone, timeline_chart


def events(trace: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    return found


def main(run: str, key: str, picture: str) -> None:
    chapter, _, name = key.partition(":")
    folder = Path(run) / f"{chapter}_{name}" / "profiles"
    sides = ("baseline", "optimized")
    chart = timeline_chart({side: events(folder / f"{side}_{name}.trace.json") for side in sides})
    Path(picture).write_text(standing_alone(chart))


if __name__ == "__main__":
    main(*sys.argv[1:])
