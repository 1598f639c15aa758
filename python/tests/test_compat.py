"""The listings of the projects whose interfaces these are, and what their pages promise."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from conftest import HERE, PATIENCE

from gangline import JobFailed, PoolError
from gangline.compat import CfgNode, GPUPool, OrderedRunner, UnorderedRunner

pytest.importorskip("numpy")

EXAMPLES = HERE.parent / "examples"


def run(name, folder, **environment):
    path = os.pathsep.join([str(HERE / "stubs"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("sum_of_squares.py", "328350\n"),
        ("sum_of_powers.py", "24502500\n"),
        ("nn_predictor.py", "(100, 3)\n"),
        ("batch_predictor.py", "(100, 3)\n"),
    ],
)
def test_a_listing_of_easycore_runs(name, printed, tmp_path):
    ended = run(name, tmp_path)
    assert (ended.stdout, ended.stderr) == (printed, "")


def test_the_listing_of_saber_runs(tmp_path):
    folder = tmp_path / "path/to/micrographs"
    folder.mkdir(parents=True)
    for name, level in (("a", 1), ("b", 200), ("c", 3)):
        (folder / f"{name}.mrc").write_text(str(level))
    ended = run("gpupool.py", tmp_path, CUDA_VISIBLE_DEVICES="0,1")
    assert "3 items in" in ended.stdout
    assert "(path/to/micrographs/b.mrc): ValueError: out of focus" in ended.stdout
    assert "Processing micrographs: 3 items" in ended.stderr
    written = (tmp_path / "output.zarr").read_text().splitlines()
    assert sorted(written) == ["a (4, 4) uint8", "c (4, 4) uint8"]


@pytest.fixture
def model(tmp_path):
    """Write a model to the test's folder: relu(x @ [1, -1, 2] + 0.5)."""
    onnx = pytest.importorskip("onnx", reason="onnx cannot be installed here")
    pytest.importorskip("onnxruntime", reason="onnxruntime cannot be installed here")
    from onnx import TensorProto, helper

    values = [
        helper.make_tensor("w", TensorProto.FLOAT, [1, 3], [1.0, -1.0, 2.0]),
        helper.make_tensor("b", TensorProto.FLOAT, [3], [0.5] * 3),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scaled"]),
        helper.make_node("Add", ["scaled", "b"], ["shifted"]),
        helper.make_node("Relu", ["shifted"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, size]) for name, size in (("x", 1), ("y", 3))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], values)
    made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path


def test_the_predictor_runs_with_onnx_runtime(model):
    ended = run("onnx_predictor.py", model)
    assert (ended.stdout, ended.returncode) == ("(100, 3) [0.5 1.5 2.5]\n", 0), ended.stderr


class Counting(OrderedRunner):
    @staticmethod
    def producer_init(device, cfg):
        cfg.seen = 0

    @staticmethod
    def producer_work(device, cfg, data):
        cfg.seen += 1
        return device, cfg.seen, data

    @staticmethod
    def consumer_init(cfg):
        cfg.taken = []

    @staticmethod
    def consumer_work(cfg, data):
        cfg.taken.append(data)

    @staticmethod
    def consumer_end(cfg):
        return cfg.taken


class Failing(UnorderedRunner):
    @staticmethod
    def producer_work(device, cfg, data):
        if data == 3:
            raise ValueError("three")
        return data


class FailingConsumer(UnorderedRunner):
    @staticmethod
    def consumer_work(cfg, data):
        raise ValueError("full")


def test_producers_keep_their_cfg_and_consumers_do_not():
    runner = Counting(devices=1)
    assert [seen for _, seen, _ in runner("abcd")] == [1, 2, 3, 4]
    assert [seen for _, seen, _ in runner("ab")] == [5, 6]
    runner.close()


def test_order_is_that_of_the_input():
    runner = Counting(devices=["cpu", "cpu", "cpu"])
    assert [data for _, _, data in runner(range(100))] == list(range(100))
    runner.close()


def test_a_device_is_the_name_that_was_given():
    runner = Counting(devices=["cuda:1", "cuda:1", "cuda:3"])
    assert {device for device, _, _ in runner(range(50))} <= {"cuda:1", "cuda:3"}
    runner.close()


def test_a_runner_is_closed_and_activated():
    cfg = CfgNode({"step": 1})
    runner = Counting(devices=1, cfg=cfg)
    assert runner.is_activate
    runner.close()
    runner.close()
    with pytest.raises(PoolError, match="The runner is closed"):
        runner([1])
    runner.activate()
    runner.activate()
    assert runner([None]) == [("cpu", 1, None)]
    runner.close()
    assert cfg.dict() == {"step": 1}


def test_a_frozen_cfg_can_be_written_by_hooks():
    cfg = CfgNode()
    cfg.freeze()
    runner = Counting(devices=1, cfg=cfg)
    assert runner([7]) == [("cpu", 1, 7)]
    runner.close()


def test_no_input_still_runs_the_consumer():
    runner = Counting(devices=1)
    assert runner([]) == []
    runner.close()


def test_failures_end_the_call_and_not_the_runner():
    runner = Failing(devices=2)
    with pytest.raises(JobFailed, match="ValueError: three"):
        runner(range(10))
    assert runner([1]) is None
    runner.close()
    runner = FailingConsumer(devices=2)
    with pytest.raises(ValueError, match="full"):
        runner(range(10))
    runner.close()


@pytest.mark.parametrize("devices", [0, [], True, "gpu0", ["cuda:x"]])
def test_devices_are_checked(devices):
    with pytest.raises((TypeError, ValueError)):
        Counting(devices=devices)


def test_cfg_nodes_behave_as_in_easycore():
    cfg = CfgNode({"a": "(1, 2)", "b": {"c": "text"}, "d": ["3"]})
    assert (cfg.a, cfg.b.c, cfg["b"]["c"], cfg.d) == ((1, 2), "text", "text", ["3"])
    with pytest.raises(AttributeError):
        _ = cfg.missing
    with pytest.raises(KeyError):
        CfgNode({"1a": 0})
    cfg.freeze()
    with pytest.raises(AttributeError, match="frozen"):
        cfg.b.c = 1
    assert cfg.copy().is_frozen()
    assert str(cfg) == "{'a': (1, 2), 'b': {'c': 'text'}, 'd': ['3']}"


def load(gpu_id, size, scale=1):
    return {"gpu": gpu_id, "size": size * scale}


def nothing(gpu_id):
    return None


def task(x, y=0, gpu_id=None, models=None):
    if x == "z":
        raise KeyError("bad")
    return x, y, gpu_id, models


def no_models(x, gpu_id):
    return x, gpu_id


@pytest.mark.parametrize("approach", ["threading", "multiprocessing"])
def test_a_gpu_pool_returns_records_in_the_order_of_the_tasks(approach):
    with GPUPool(load, (2,), {"scale": 3}, gpu_ids=[4], approach=approach) as pool:
        records = pool.execute(
            task, ["w", ("x", 1), {"x": "y"}, ["z"], (("v",), {"y": 5})], task_ids=["w", 7, None, "z", "v"]
        )
    assert [record["task_id"] for record in records] == ["w", 7, None, "z", "v"]
    models = {"gpu": 4, "size": 6}
    assert [record.get("result") for record in records] == [
        ("w", 0, 4, models),
        ("x", 1, 4, models),
        ("y", 0, 4, models),
        None,
        ("v", 5, 4, models),
    ]
    assert [record["success"] for record in records] == [True, True, True, False, True]
    assert {record["gpu_id"] for record in records} == {4}
    assert records[3]["error"] == "KeyError: 'bad'"
    assert "Traceback" in records[3]["traceback"]
    assert "result" not in records[3]


def test_models_are_none_or_left_out():
    with GPUPool(nothing, num_workers=1, gpu_ids=[]) as pool:
        assert pool.execute(task, ["x"])[0]["result"] == ("x", 0, 0, None)
        assert pool.execute(no_models, ["x"])[0]["result"] == ("x", 0)
        assert pool.execute(task, ["x"], y=9)[0]["result"][1] == 9


def test_a_gpu_pool_starts_again_after_shutdown():
    pool = GPUPool(num_workers=1, gpu_ids=[])
    assert pool.execute(no_models, [1])[0]["success"]
    pool.shutdown()
    pool.shutdown()
    assert pool.execute(no_models, [2])[0]["success"]
    pool.shutdown()
    assert pool.execute(no_models, []) == []
    pool.shutdown()


def test_another_approach_is_refused():
    with pytest.raises(ValueError, match="approach must be 'threading' or 'multiprocessing', got 'ray'"):
        GPUPool(approach="ray", num_workers=1, gpu_ids=[])


def own_process(x, gpu_id):
    return os.getpid()


def test_workers_are_threads_unless_processes_are_asked_for():
    with GPUPool(num_workers=2, gpu_ids=[]) as pool:
        assert {record["result"] for record in pool.execute(own_process, range(8))} == {os.getpid()}
    with GPUPool(num_workers=2, gpu_ids=[], approach="multiprocessing") as pool:
        assert os.getpid() not in {record["result"] for record in pool.execute(own_process, range(8))}


class Writer:
    """A store as SABER opens it: for writing, once in a process, at the first mask."""

    stores: ClassVar[dict] = {}
    lock = threading.Lock()

    def __init__(self, path):
        with Writer.lock:
            if path not in Writer.stores:
                Writer.stores[path] = open(path, "w")  # noqa: SIM115
            self.store = Writer.stores[path]

    def write(self, number):
        with Writer.lock:
            self.store.write(f"{number}\n")
            self.store.flush()


def write_mask(number, path, gpu_id):
    Writer(path).write(number)
    return number


def test_a_store_that_each_process_opens_anew_has_all_masks(tmp_path):
    path = str(tmp_path / "masks")
    with GPUPool(num_workers=2, gpu_ids=[]) as pool:
        records = pool.execute(write_mask, [(number, path) for number in range(8)])
        records += pool.execute(write_mask, [(number, path) for number in range(8, 16)])
    assert all(record["success"] for record in records)
    Writer.stores.pop(path).close()
    assert sorted(map(int, Path(path).read_text().split())) == list(range(16))


def test_ids_that_do_not_fit_are_an_error():
    pool = GPUPool(num_workers=1, gpu_ids=[])
    with pytest.raises(ValueError, match="1 task_ids for 2 tasks"):
        pool.execute(task, [1, 2], task_ids=["a"])


def test_without_gpus_the_number_of_workers_is_needed(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RuntimeError, match="num_workers=n"):
        GPUPool(load)
