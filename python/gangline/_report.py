"""What happened in a pool, a pipeline or a service, as the library has measured it."""

from __future__ import annotations

import functools
import json
import os
from typing import Any, NamedTuple, Optional, Union

from gangline._native import NativeReport

__all__ = ["Report", "WorkerShare", "report_of"]


class WorkerShare(NamedTuple):
    """What one worker did."""

    #: Its number, as in ``Record.worker``.
    worker: int
    #: Where it ran: ``"cpu"``, ``"cuda:0"``.
    place: str
    #: The name of its stage in a pipeline, else ``None``.
    stage: Optional[str]
    #: The items that it was done with.
    items: int
    #: The attempts that failed.
    failed: int
    #: The share of the time in which it worked, from 0 to 1.
    busy: float


class Report:
    """What happened until it was asked for: how items ended, what each worker did, and what limited the run.

    As a text, it is the report for a terminal. A notebook shows it with bars.

    >>> import operator
    >>> from gangline import Pool
    >>> with Pool(None, operator.index, workers=2) as pool:
    ...     failed = list(pool.imap([1]))
    >>> report = pool.report()
    >>> report.ok, report.failed, sorted(report.busy)
    (0, 1, [0, 1])
    >>> "item 0: TypeError: " in report
    True
    """

    def __init__(self, native: NativeReport) -> None:
        self._native = native

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read a report that was saved as JSON, also by ``gangline run --report run.json``."""
        return cls(NativeReport.of_json(text))

    @property
    def conclusion(self) -> str:
        """What limited the run, why, and what to change, as a sentence. That of a pipeline names the stage."""
        return str(self._data["conclusion"])

    @property
    def limiting_stage(self) -> Optional[str]:
        """The name of the stage that limited the run of a pipeline; ``None`` if none stands out."""
        number = self._data.get("bottleneck_stage")
        return None if number is None else str(self._data["stages"][number - 1]["name"])

    @property
    def ok(self) -> int:
        """How many items succeeded."""
        return int(self._data["account"]["ok"])

    @property
    def failed(self) -> int:
        """How many items failed."""
        return int(self._data["account"]["failed"])

    @property
    def already_done(self) -> int:
        """How many items an earlier run had done, as the journal says."""
        return int(self._data["account"]["already_done"])

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return float(self._data["lasted"])

    @property
    def busy(self) -> dict[int, float]:
        """The share of the time in which each worker worked, from 0 to 1, by the number of the worker."""
        return {share.worker: share.busy for share in self.workers}

    @property
    def workers(self) -> list[WorkerShare]:
        """What each worker did. Those of a pipeline are numbered through all stages."""
        return [
            WorkerShare(number, each["place"], each.get("stage"), each["items"], each["failed"], each["busy"])
            for number, each in enumerate(self._data["producers"])
        ]

    @functools.cached_property
    def stages(self) -> dict[str, Report]:
        """The report of each stage of a pipeline, by its name. In each, workers are numbered from 0."""
        return {name: Report(stage) for name, stage in self._native.stages()}

    def json(self) -> str:
        """Return the report as JSON, whose form ``docs/report.schema.json`` describes."""
        return self._native.json()

    def to_dict(self) -> dict[str, Any]:
        """Return what the JSON says."""
        data: dict[str, Any] = json.loads(self.json())
        return data

    def html(self) -> str:
        """Return the report as a page, which loads nothing and runs no script."""
        return self._native.html()

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the report to a file: a page if its name ends with ``.html``, JSON with ``.json``, else a text."""
        forms = {".html": self.html, ".json": self.json}
        form = forms.get(os.path.splitext(os.fspath(path))[1], self._native.text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(form())

    @functools.cached_property
    def _data(self) -> dict[str, Any]:
        return self.to_dict()

    def __contains__(self, text: str) -> bool:
        """Whether the text of the report has this part."""
        return text in str(self)

    def __str__(self) -> str:
        return self._native.text()

    def __repr__(self) -> str:
        title = str(self).partition("\n")[0]
        return f"<gangline.Report: {title}>"

    def _repr_html_(self) -> str:
        return self._native.html_summary()

    def __reduce__(self) -> tuple[Any, ...]:
        return Report.from_json, (self.json(),)


def report_of(native: Optional[NativeReport]) -> Report:
    """Return the report, or that of no run."""
    return Report(NativeReport.of_json("{}") if native is None else native)
