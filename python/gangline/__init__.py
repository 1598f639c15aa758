"""Run Python functions on all devices: workers that load once, results in order, bounded memory.

>>> import gangline, operator
>>> with gangline.Pool(None, operator.is_not, workers=2) as pool:
...     for record in pool.imap([1, None], keys=["one", "none"]):
...         print(record.key, record.value)
one True
none False
"""

from gangline._context import Context, log
from gangline._errors import JobFailed, PoolError
from gangline._loop import worker
from gangline._pool import Pool
from gangline._records import Record

__all__ = ["Context", "JobFailed", "Pool", "PoolError", "Record", "log", "worker"]
