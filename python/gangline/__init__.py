"""Run Python functions on all devices: workers that load once, results in order, bounded memory.

>>> import gangline, operator
>>> with gangline.Pool(None, operator.is_not, workers=2) as pool:
...     for record in pool.imap([1, None], keys=["one", "none"]):
...         print(record.key, record.value)
one True
none False
"""

from typing import TYPE_CHECKING, Any

from gangline._context import Context, log
from gangline._errors import BadRequest, Closed, DeadlineExceeded, Forked, Full, JobFailed, NoWorkers, PoolError
from gangline._loop import worker
from gangline._records import Record

if TYPE_CHECKING:
    from gangline._broker import Nats
    from gangline._executor import Executor
    from gangline._futures import CallFuture
    from gangline._options import Batch, ForkServer
    from gangline._pipeline import Parts, Pipeline, RunSummary
    from gangline._pool import Pool
    from gangline._report import Report, WorkerShare
    from gangline._runner import ConsumerContext, Runner, run
    from gangline._service import Service

    __version__: str

__all__ = [
    "BadRequest",
    "Batch",
    "CallFuture",
    "Closed",
    "ConsumerContext",
    "Context",
    "DeadlineExceeded",
    "Executor",
    "ForkServer",
    "Forked",
    "Full",
    "JobFailed",
    "Nats",
    "NoWorkers",
    "Parts",
    "Pipeline",
    "Pool",
    "PoolError",
    "Record",
    "Report",
    "RunSummary",
    "Runner",
    "Service",
    "WorkerShare",
    "__version__",
    "log",
    "run",
    "worker",
]

#: The modules of names that workers do not need: they start in half the time without them.
_LATER = {
    "Batch": "_options",
    "CallFuture": "_futures",
    "ConsumerContext": "_runner",
    "Executor": "_executor",
    "ForkServer": "_options",
    "Nats": "_broker",
    "Parts": "_pipeline",
    "Pipeline": "_pipeline",
    "Pool": "_pool",
    "Report": "_report",
    "RunSummary": "_pipeline",
    "Runner": "_runner",
    "Service": "_service",
    "WorkerShare": "_report",
    "run": "_runner",
}


def __getattr__(name: str) -> Any:
    """Import a class, or look up the version, for its first use."""
    found: Any
    if name in _LATER:
        from importlib import import_module

        found = getattr(import_module(f"gangline.{_LATER[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import version

        found = version("gangline")
    else:
        raise AttributeError(f"module 'gangline' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
