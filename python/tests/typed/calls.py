"""What mypy and pyright infer of pools, services and executors. It is checked, and not run."""

# mypy: allow-untyped-defs
# pyright: reportUnnecessaryTypeIgnoreComment=true

import concurrent.futures
import operator
from collections.abc import AsyncIterator, Iterator
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import gangline


class Model:
    pass


def load(context: gangline.Context) -> Model:
    return Model()


def read(model: Model, path: str) -> int:
    return len(path)


def read_all(model: Model, paths: list[str]) -> list[int]:
    return [len(path) for path in paths]


def stacked(model: Model, images: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    return np.stack(images)


def end(model: Model) -> None:
    pass


def untyped(model, path):
    return path


async def paths() -> AsyncIterator[str]:
    yield "a"


def launched(model: Model, paths: list[str]) -> bytes:
    return b"".join(map(str.encode, paths))


def copied(model: Model, handle: bytes) -> list[int]:
    return list(handle)


def finished() -> None:
    pool = gangline.Pool(load, launched, finish=copied, batch=8)
    assert_type(pool, gangline.Pool[Model, str, int])
    service = gangline.Service(load, launched, finish=copied, batch="auto")
    assert_type(service("a"), int)
    single = gangline.Pool(load, read, finish=lambda model, length: str(length))
    assert_type(single.map(["a"]), list[str])


async def pipelines() -> None:
    pipeline = gangline.Pipeline().stage(load, read, workers=2).stage(str)
    assert_type(pipeline, gangline.Pipeline[str, str])
    for record in pipeline.imap(["a"]):
        assert_type(record, gangline.Record[str])
    async for record in pipeline.amap(paths()):
        assert_type(record.value, str)
    pipeline.amap([3])  # type: ignore[list-item]
    report = pipeline.report()
    assert_type(report, gangline.Report)
    assert_type(report.busy, dict[int, float])
    assert_type(report.stages, dict[str, gangline.Report])
    assert_type(report.limiting_stage, Optional[str])
    assert_type(report.workers[0].busy, float)


def pools() -> None:
    pool = gangline.Pool(load, read, gpus="0-3", retries=1, end=end)
    assert_type(pool, gangline.Pool[Model, str, int])
    for record in pool.imap(["a"], keys="a"):
        assert_type(record, gangline.Record[int])
        assert_type(record.value, int)
        assert_type(record.error, Optional[str])
    assert_type(pool.map(iter(["a"])), list[int])
    assert_type(pool("a"), int)
    pool(3)  # type: ignore[arg-type]
    pool.map([3])  # type: ignore[list-item]
    with gangline.Pool(load, read_all, batch="auto") as lists:
        assert_type(lists, gangline.Pool[Model, str, int])
        assert_type(lists.map(["a"]), list[int])
    limited = gangline.Pool(load, stacked, batch=gangline.Batch.auto(64, latency="50ms"), window=8)
    assert_type(limited(np.zeros((2, 2))), Any)
    without_load = gangline.Pool(None, operator.is_, workers=2)
    assert_type(without_load.map([None, 1]), list[bool])
    lambdas = gangline.Pool(None, lambda _, x: x, workers=2)
    assert_type(lambdas(1), Any)
    plain = gangline.Pool(load, untyped)
    assert_type(plain("a"), Any)
    gangline.Pool(load, read, color="red")  # type: ignore[call-overload]
    gangline.Pool(load, read, order="random")  # type: ignore[call-overload]


def with_a_parameter(pool: gangline.Pool[Model, str, int], anything: gangline.Pool) -> Iterator[gangline.Record]:
    assert_type(pool.submit("a").result(), int)
    return anything.imap([1])


async def tasks(pool: gangline.Pool[Model, str, int]) -> None:
    assert_type(await pool.acall("a"), int)
    async for record in pool.amap(paths()):
        assert_type(record, gangline.Record[int])
    async for record in pool.amap(["a"]):
        assert_type(record.value, int)
    await pool.acall(3)  # type: ignore[arg-type]


def futures(pool: gangline.Pool[Model, str, int]) -> None:
    future = pool.submit("a")
    assert_type(future, gangline.CallFuture[int])
    as_standard: concurrent.futures.Future[int] = future
    assert_type(as_standard.result(), int)
    assert_type(future.record, Optional[gangline.Record[int]])


async def services() -> None:
    service = gangline.Service(load, read_all, gpus="all", batch=8, queue=64)
    assert_type(service, gangline.Service[Model, str, int])
    assert_type(service("a"), int)
    assert_type(await service.with_deadline("50ms").acall("a"), int)
    assert_type(service.try_submit("a").result(), int)
    for record in service.stream(["a"]):
        assert_type(record.value, int)
    assert_type(service.drain(25), bool)
    gangline.Service(load, read, journal="run.journal")  # type: ignore[call-overload]


def executors() -> None:
    with gangline.Executor(4, retries=1) as executor:
        future = executor.submit(sorted, [3, 1], reverse=True)
        assert_type(future.result(), list[int])
        assert_type(executor.submit(read, Model(), "a").result(), int)
        assert_type(list(executor.map(len, ["a"])), list[int])
        executor.submit(read, "a")  # type: ignore[call-arg]
    as_standard: concurrent.futures.Executor = executor
    as_standard.shutdown(wait=False, cancel_futures=True)
