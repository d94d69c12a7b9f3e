"""A pair's session on a host that another one leads: its ranks are started and watched here, all else is done there."""

from common.python.base.results import PairResult
from common.python.corpus.discovery import Pair
from common.python.run.settings import Settings
from common.python.workers.process import WorkerError, end_all

PATIENCE = 2.0  # of a pair's time limit, since the leading host may still be at its previous pair


def follow(pair: Pair, result: PairResult, settings: Settings) -> PairResult:
    """Take part until the leading host has ended the pair; it has the result, and this host's row says so."""
    worker = settings.hire(pair)
    try:
        worker.call("watch", PATIENCE * settings.time_limit_s)
        result.status, result.reason = "unsupported", "its ranks here followed node rank 0, which has the results"
    except WorkerError as error:
        result.status, result.reason = "failed", f"{error.who}: {error.reason}"
    finally:
        end_all([worker])
        result.log = worker.log_tail()
    for row in result.variants:
        if row.status == "proven":
            row.status, row.reason = result.status, result.reason
    return result
