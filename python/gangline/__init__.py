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
from gangline._errors import BadRequest, JobFailed, PoolError
from gangline._loop import worker
from gangline._records import Record

if TYPE_CHECKING:
    from gangline._pool import Pool

    __version__: str

__all__ = ["BadRequest", "Context", "JobFailed", "Pool", "PoolError", "Record", "__version__", "log", "worker"]


def __getattr__(name: str) -> Any:
    """Import the pool, or look up the version, for its first use: workers start in half the time without them."""
    found: Any
    if name == "Pool":
        from gangline._pool import Pool as found
    elif name == "__version__":
        from importlib.metadata import version

        found = version("gangline")
    else:
        raise AttributeError(f"module 'gangline' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
