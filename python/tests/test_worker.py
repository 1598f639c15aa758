"""The loop of a script for `gangline run --warm`, against a stand-in for the program."""

import json
import subprocess
import sys

import pytest
from conftest import PATIENCE

from gangline._loop import JsonCodec, outputs_of

np = pytest.importorskip("numpy")

HELLO = {"gangline": 2, "worker": 3, "gpus": ["1"], "threads": 4, "batch": 8}


class Talk:
    """A worker, and what it said."""

    def __init__(self, script, hello=HELLO):
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import os, sys, gangline\n{script}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.say(hello)
        self.ready = self.hear()

    def say(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, value, item=7):
        self.say({"item": item, "attempt": 1, "input": value})
        return self.hear()

    def ask_list(self, values):
        self.say({"items": [{"item": at, "attempt": 1, "input": value} for at, value in enumerate(values)]})

    def end(self):
        out, err = self.process.communicate(timeout=PATIENCE)
        assert out == ""
        return self.process.returncode, err


def test_an_item_is_answered_and_the_worker_ends():
    talk = Talk("gangline.worker(lambda cx: cx, lambda cx, x: [cx.worker, cx.gpus, cx.device, cx.threads, x])")
    assert talk.ready == {"gangline": 2, "batch": False}
    assert talk.ask("a") == {"item": 7, "output": [3, ["1"], "cuda:0", 4, "a"]}
    assert talk.ask(None, 8) == {"item": 8, "output": [3, ["1"], "cuda:0", 4, None]}
    assert talk.end() == (0, "")


def test_version_1_gets_one_item_at_a_time():
    talk = Talk("gangline.worker(None, lambda _, xs: [x + 1 for x in xs], batch=8)", {"gangline": 1, "worker": 0})
    assert talk.ready == {"gangline": 1}
    assert talk.ask(1) == {"item": 7, "output": 2}
    assert talk.end()[0] == 0


def test_a_newer_program_gets_version_2():
    talk = Talk("gangline.worker(None, lambda _, x: x)", {**HELLO, "gangline": 3, "new": []})
    assert talk.ready["gangline"] == 2
    assert talk.end()[0] == 0


def test_a_list_is_answered_item_by_item():
    talk = Talk("gangline.worker(None, lambda _, xs: [ValueError('odd') if x % 2 else x for x in xs], batch=8)")
    assert talk.ready == {"gangline": 2, "batch": True}
    talk.ask_list([0, 1, 2])
    assert [talk.hear() for _ in range(3)] == [
        {"item": 0, "output": 0},
        {"item": 1, "error": "ValueError: odd"},
        {"item": 2, "output": 2},
    ]
    talk.end()


def test_a_list_that_fails_is_not_blamed_on_its_items():
    talk = Talk("gangline.worker(None, lambda _, xs: 1 / 0, batch=8)")
    talk.ask_list([0, 1])
    assert talk.hear() == {"error": "ZeroDivisionError: division by zero", "of": "list"}
    talk.ask_list([5])
    assert talk.hear() == {"item": 0, "error": "ZeroDivisionError: division by zero"}
    assert "Traceback" in talk.end()[1]


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError()",
        "type('OutOfMemoryError', (RuntimeError,), {})('CUDA out of memory')",
        "RuntimeError('CUDA error: out of memory')",
    ],
)
def test_out_of_memory_divides_the_list(error):
    talk = Talk(f"def work(_, xs): raise {error}\ngangline.worker(None, work, batch=8)")
    talk.ask_list([0, 1])
    assert talk.hear() == {"oom": True}
    talk.ask_list([0])
    assert talk.hear()["item"] == 0
    talk.end()


@pytest.mark.parametrize(
    "failing",
    [
        "raise RuntimeError('CUDA error: device-side assert triggered')",
        "raise RuntimeError('CUDA failure 700: an illegal memory access was encountered ; GPU=0')",
        "raise type('CUDARuntimeError', (RuntimeError,), {})('cudaErrorIllegalAddress: an illegal memory access')",
        "raise ValueError('bad image') from RuntimeError('INTERNAL: CUDA_ERROR_LAUNCH_FAILED')",
    ],
)
def test_a_worker_that_has_lost_its_gpu_answers_and_ends(failing):
    script = f"""
def work(_, x):
    if x:
        {failing}
    return x
gangline.worker(None, work, end=lambda _: print("an end without its GPU"))
"""
    talk = Talk(script)
    assert talk.ask(0) == {"item": 7, "output": 0}
    assert "another worker takes its place" in talk.ask(1)["log"]
    assert "error" in talk.hear()
    status, said = talk.end()
    assert status == 69
    assert "an end without" not in said


def test_a_list_that_has_lost_the_gpu_is_divided_and_the_worker_ends():
    script = """
def work(_, xs):
    raise RuntimeError('CUDA error: device-side assert triggered')
gangline.worker(None, work, batch=8)
"""
    talk = Talk(script)
    talk.ask_list([0, 1])
    assert "log" in talk.hear()
    assert talk.hear()["of"] == "list"
    assert talk.end()[0] == 69


def test_one_output_for_a_list_is_named_by_its_type():
    talk = Talk("gangline.worker(None, lambda _, xs: sum(xs), batch=8)")
    talk.ask_list([0, 1])
    errors = {talk.hear()["error"] for _ in range(2)}
    assert errors == {"ValueError: with batch, work returns a list of outputs, got int"}
    talk.end()


@pytest.mark.parametrize(
    ("returned", "name"),
    [
        ("{'label': xs, 'score': xs}", "dict"),
        ("collections.OrderedDict(zip(xs, xs))", "OrderedDict"),
        ("collections.Counter(xs)", "Counter"),
        ("collections.UserDict(zip(xs, xs))", "UserDict"),
        ("types.MappingProxyType({'a': 1, 'b': 2})", "mappingproxy"),
        ("type('Keyed', (), {'keys': list, '__getitem__': lambda self, key: key})()", "Keyed"),
        ("type('Frame', (), {'columns': ['a', 'b'], '__iter__': lambda self: iter('ab')})()", "Frame"),
        ("type('Model', (), {'model_fields': {}, '__iter__': lambda self: iter([('a', 1), ('b', 2)])})()", "Model"),
        ("collections.namedtuple('Scores', 'labels scores')([1, 2], [3, 4])", "Scores"),
        ("time.localtime()", "struct_time"),
        ("{x * 1.5 for x in xs}", "set"),
        ("frozenset(xs)", "frozenset"),
        ("dict(zip(xs, xs)).keys()", "dict_keys"),
        ("dict(zip(xs, xs)).items()", "dict_items"),
        ("bytearray(len(xs))", "bytearray"),
        ("memoryview(bytes(len(xs)))", "memoryview"),
        ("'ab'", "str"),
        ("None", "NoneType"),
        ("np.array(1.5)", "ndarray"),
    ],
)
def test_a_list_has_an_output_for_each_input_in_their_order(returned, name):
    talk = Talk(
        f"import collections, time, types, numpy as np\ngangline.worker(None, lambda _, xs: {returned}, batch=8)"
    )
    talk.ask_list([10, 20])
    errors = {talk.hear()["error"] for _ in range(2)}
    assert errors == {f"ValueError: with batch, work returns a list of outputs, got {name}"}
    talk.end()


@pytest.mark.parametrize(
    "returned",
    [
        "tuple(xs)",
        "(x for x in xs)",
        "map(int, xs)",
        "collections.deque(xs)",
        "dict(enumerate(xs)).values()",
        "np.array(xs)",
        "array.array('i', xs)",
    ],
)
def test_ordered_outputs_need_not_be_a_list(returned):
    talk = Talk(f"import array, collections, numpy as np\ngangline.worker(None, lambda _, xs: {returned}, batch=8)")
    talk.ask_list([20, 10])
    assert [talk.hear()["output"] for _ in range(2)] == [20, 10]
    talk.end()


def test_rows_of_a_series_and_of_a_structured_array_are_outputs():
    pd = pytest.importorskip("pandas")
    assert outputs_of(pd.Series([20, 10], index=[1, 0]), 2) == [20, 10]
    assert outputs_of(pd.DataFrame({"label": [1, 2], "score": [3, 4]}), 2) is None
    rows = np.array([(1, 2.5), (3, 4.5)], dtype=[("label", int), ("score", float)])
    assert [JsonCodec().encode(row) for row in outputs_of(rows, 2)] == ["[1,2.5]", "[3,4.5]"]


@pytest.mark.parametrize(
    ("returned", "number"),
    [("xs[1:]", "2"), ("xs + xs", "6"), ("iter(xs[1:])", "2"), ("itertools.count()", "4 or more"), ("[]", "0")],
)
def test_a_list_with_a_wrong_number_of_outputs_is_divided(returned, number):
    talk = Talk(f"import itertools\ngangline.worker(None, lambda _, xs: {returned}, batch=8)")
    talk.ask_list([0, 1, 2])
    assert talk.hear() == {"error": f"ValueError: work returned {number} outputs for 3 inputs", "of": "list"}
    talk.ask_list([0])
    assert talk.hear()["item"] == 0
    talk.end()


def test_an_input_without_an_output_fails_alone():
    talk = Talk("gangline.worker(None, lambda _, xs: [x for x in xs if x != 3], batch=8)")
    talk.ask_list([3])
    assert talk.hear() == {"item": 0, "error": "ValueError: work returned 0 outputs for 1 inputs"}
    talk.ask_list([4])
    assert talk.hear() == {"item": 0, "output": 4}
    talk.end()


@pytest.mark.parametrize(("value", "name"), [("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")])
def test_a_value_that_json_lacks_fails_its_item_only(value, name):
    talk = Talk("gangline.worker(None, lambda _, x: {'score': float(x)})")
    assert talk.ask(value) == {"item": 7, "error": f"ValueError: {name} is not JSON"}
    assert talk.ask("1.5") == {"item": 7, "output": {"score": 1.5}}
    talk.end()


def test_values_of_numpy_are_numbers_and_lists():
    talk = Talk("import numpy as np\ngangline.worker(None, lambda _, x: [np.float32(x), np.arange(3), np.bool_(1)])")
    assert talk.ask(0.5) == {"item": 7, "output": [0.5, [0, 1, 2], True]}
    talk.end()


def test_an_output_that_is_not_json_fails_its_item_only():
    talk = Talk("gangline.worker(None, lambda _, x: {1, 2} if x else 0)")
    assert talk.ask(1)["error"].startswith("TypeError: an output of type set is not JSON: convert it to a text")
    assert talk.ask(0)["output"] == 0
    talk.end()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("np.longdouble(1)", "longdouble (float128)"),
        ("np.ones(2, 'g')", "longdouble (float128)"),
        ("np.clongdouble(1)", "clongdouble (complex256)"),
        ("np.complex64(1)", "complex"),
        ("np.array(['2020-01-01'], 'M8[ns]')", "ndarray (datetime64[ns])"),
        ("np.datetime64('2020-01-01')", "datetime64 (datetime64[D])"),
        ("np.timedelta64(5, 'ns')", "timedelta64 (timedelta64[ns])"),
        ("np.timedelta64(5)", "timedelta64 (timedelta64)"),
        ("np.array([(1, 5)], [('a', int), ('b', 'm8[ns]')])", "ndarray ([('a', '<i8'), ('b', '<m8[ns]')])"),
        ("np.array([np.datetime64(1, 'ns'), 2], object)", "datetime64 (datetime64[ns])"),
        ("np.bytes_(b'a')", "bytes"),
        ("decimal.Decimal(1)", "Decimal"),
        ("datetime.datetime(2020, 1, 1)", "datetime"),
        ("1j", "complex"),
    ],
)
def test_a_type_that_json_lacks_is_named(value, name):
    talk = Talk(f"import datetime, decimal, numpy as np\ngangline.worker(None, lambda _, x: [{value}])")
    assert talk.ask(1)["error"].startswith(f"TypeError: an output of type {name} is not JSON: convert it")
    talk.end()


@pytest.mark.parametrize(("value", "text"), [("np.float16(0.1)", 0.0999755859375), ("np.uint64(2**64 - 1)", 2**64 - 1)])
def test_numbers_keep_their_value(value, text):
    talk = Talk(f"import numpy as np\ngangline.worker(None, lambda _, x: [{value}, 10**30])")
    assert talk.ask(1)["output"] == [text, 10**30]
    talk.end()


def test_a_name_that_is_not_unicode_loses_no_reason():
    script = r"""
class Odd(Exception): pass
Odd.__qualname__ = "Od\udce9"
name = "caf\udce9.mrc"
def work(_, x):
    print(name)
    gangline.log(name, name)
    raise Odd(name)
gangline.worker(None, work)
"""
    talk = Talk(script)
    assert talk.ask(1) == {"log": "caf\\udce9.mrc", "level": "caf\\udce9.mrc"}
    assert talk.hear() == {"item": 7, "error": "Od\\udce9: caf\\udce9.mrc"}
    status, said = talk.end()
    assert status == 0
    assert said.startswith("caf\\udce9.mrc\n") and "Traceback" in said


def test_a_line_that_is_too_long_for_the_program_is_not_written():
    script = """
def work(_, x):
    if x == "raise":
        raise ValueError("x" * (65 << 20))
    return "x" * (x << 20)
gangline.worker(None, work)
"""
    talk = Talk(script)
    assert talk.ask(65)["error"].startswith("ValueError: an output has at most 64 MiB as JSON, got 65")
    assert len(talk.ask("raise")["error"]) == 32 << 10
    assert len(talk.ask(1)["output"]) == 1 << 20
    talk.end()


def test_prints_go_aside_those_of_c_libraries_too():
    work = "(print('py'), os.write(1, b'low\\n'), os.system('echo sub'), x)[-1]"
    talk = Talk(f"gangline.worker(lambda cx: print('loading'), lambda _, x: {work})")
    assert talk.ask("a") == {"item": 7, "output": "a"}
    status, printed = talk.end()
    assert (status, sorted(printed.split())) == (0, ["loading", "low", "py", "sub"])


def test_a_task_reads_no_messages():
    talk = Talk("gangline.worker(None, lambda _, x: sys.stdin.read() + repr(os.read(0, 9)))")
    assert talk.ask("a")["output"] == "b''"
    assert talk.ask("b")["output"] == "b''"
    talk.end()


@pytest.mark.parametrize("way", ["sys.exit(3)", "1 / 0", "(_ for _ in ()).throw(GeneratorExit)"])
def test_an_exception_is_its_items_error(way):
    talk = Talk(f"gangline.worker(None, lambda _, x: {way} if x else 'fine')")
    assert talk.ask(1)["error"].split(":")[0] in ("SystemExit", "ZeroDivisionError", "GeneratorExit")
    assert talk.ask(0)["output"] == "fine"
    assert talk.end()[0] == 0


def test_a_bad_request_is_the_fault_of_its_input():
    script = "def work(_, xs):\n    if xs == ['whole']: raise gangline.BadRequest('no image')\n"
    script += "    return [gangline.BadRequest(f'no {x}') if x else x for x in xs]\n"
    talk = Talk(script + "gangline.worker(None, work, batch=8)")
    talk.ask_list(["a", "", 0])
    assert talk.hear() == {"item": 0, "error": "no a", "kind": "input"}
    assert [talk.hear(), talk.hear()] == [{"item": 1, "output": ""}, {"item": 2, "output": 0}]
    talk.ask_list(["whole"])
    assert talk.hear() == {"item": 0, "error": "no image", "kind": "input"}
    assert talk.end() == (0, "")


@pytest.mark.parametrize(
    "error", ["gangline.BadRequest", "gangline.BadRequest()", "type('Mine', (gangline.BadRequest,), {})"]
)
def test_a_bad_request_may_have_no_text(error):
    talk = Talk(f"def work(_, x): raise {error}\ngangline.worker(None, work)")
    answer = talk.ask("a")
    assert answer["kind"] == "input" and answer["error"]
    assert talk.end() == (0, "")


def test_a_forked_child_does_not_answer():
    talk = Talk("gangline.worker(None, lambda _, x: 'child' if os.fork() == 0 else (os.wait(), x)[1])")
    assert talk.ask("a") == {"item": 7, "output": "a"}
    assert talk.ask("b") == {"item": 7, "output": "b"}
    assert talk.end()[0] == 0


def test_logs_are_messages_of_version_2_and_lines_in_version_1():
    script = "gangline.worker(None, lambda _, x: gangline.log('half', 'debug'))"
    talk = Talk(script)
    assert talk.ask(1) == {"log": "half", "level": "debug"}
    assert talk.hear() == {"item": 7, "output": None}
    talk.end()
    talk = Talk(script, {"gangline": 1, "worker": 0, "gpus": [], "threads": 1})
    assert talk.ask(1) == {"item": 7, "output": None}
    assert talk.end() == (0, "half\n")


def test_the_end_is_called_after_the_last_item():
    talk = Talk("gangline.worker(lambda _: 'state', lambda _, x: x, end=lambda state: print(state, 'ended'))")
    assert talk.end() == (0, "state ended\n")


def test_a_load_that_fails_ends_the_worker():
    talk = Talk("gangline.worker(lambda _: 1 / 0, lambda _, x: x)")
    assert talk.ready is None
    status, printed = talk.end()
    assert status == 1
    assert printed.endswith("ZeroDivisionError: division by zero\n")


def test_a_script_that_gangline_did_not_start_says_how():
    script = "import gangline; gangline.worker(None, lambda _, x: x)"
    ended = subprocess.run(
        [sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert "run this script by `gangline run --warm -- python3 SCRIPT`" in ended.stderr


def test_a_batch_below_one_is_refused():
    ended = subprocess.run(
        [sys.executable, "-c", "import gangline; gangline.worker(None, print, batch=0)"],
        input="{}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "batch must be at least 1, got 0" in ended.stderr
