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
from gangline._errors import JobFailed, PoolError
from gangline._loop import worker
from gangline._records import Record

if TYPE_CHECKING:
    from gangline._pool import Pool

__all__ = ["Context", "JobFailed", "Pool", "PoolError", "Record", "log", "worker"]


def __getattr__(name: str) -> Any:
    """Import the pool for its first use: workers start in half the time without it."""
    if name != "Pool":
        raise AttributeError(f"module 'gangline' has no attribute {name!r}")
    from gangline._pool import Pool

    globals()[name] = Pool
    return Pool


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
