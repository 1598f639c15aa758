"""Functions between a driver and a worker, each in a process of its own."""

import os
import subprocess
import sys
import zipapp

import pytest
from conftest import PATHS, PATIENCE

pytest.importorskip("cloudpickle")


def test_the_script_is_never_run_a_second_time(check, tmp_path):
    (tmp_path / "old").mkdir()
    check(
        """
        import logging, pathlib, random, shutil
        results = open("results.csv", "w", buffering=1)
        results.write("name,score\\n")
        logging.basicConfig(filename="run.log", filemode="w", level="INFO")
        logging.info("begun")
        with open("starts", "a") as file:
            file.write("started\\n")
        shutil.rmtree("old")
        random.seed(7)
        drawn = random.random()
        def work(_, x):
            assert random.random() != drawn
            return x + 1
        def unused(): results.write("x")
        with Pool(None, work) as pool:
            for record in range(6):
                if record in (2, 4):
                    pool.restart()
                results.write(f"{pool.map([record])[0]}\\n")
        assert pathlib.Path("results.csv").read_text() == "name,score\\n1\\n2\\n3\\n4\\n5\\n6\\n"
        assert pathlib.Path("starts").read_text() == "started\\n"
        assert pathlib.Path("run.log").read_text().count("begun") == 1
        """
    )


def test_a_process_of_multiprocessing_does_not_run_the_pool_anew(run):
    ended = run(
        """
        import multiprocessing
        def work(_, x): return x
        with Pool(None, work) as pool: pass
        process = multiprocessing.get_context("spawn").Process(target=print, args=("started",))
        process.start()
        process.join()
        print(process.exitcode)
        """
    )
    assert ended.stdout == "1\nok\n"
    assert "put that below `if __name__ == '__main__':`" in ended.stderr


def test_an_edited_script_is_not_read_again(check):
    check(
        """
        def work(_, x): return "old"
        text = open(__file__).read()
        with Pool(None, work) as pool:
            open(__file__, "w").write(text.replace('return "old"', 'return "new"'))
            assert pool.map([1]) == ["old"]
            pool.restart()
            assert pool.map([1]) == ["old"]
        """
    )


PROGRAM = """
import sys
class Point:
    def __init__(self, x): self.x = x
factor = 3
def work(state, point): return Point(state * point.x * factor)
def load(_): return 2
with Pool(load, work) as pool:
    (point,) = pool.map([Point(5)])
assert type(point) is Point and point.x == 30
"""


@pytest.mark.parametrize("command", [(), ("-c",), ("-",)])
def test_each_way_to_start_a_program_works(check, command):
    check(PROGRAM, *command)


def test_a_module_that_is_run_by_name_works(check, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("offset = 100\n")
    work = "def work(_, x):\n    from . import other\n    return x + other.offset\n"
    program = "from miniature import Pool\n" + work + "with Pool(None, work) as pool: print(pool.map([1]))\n"
    (package / "tool.py").write_text(program + PROGRAM + "print('ok')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "package.tool"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PATHS},
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("[101]\nok\n", "")


def test_a_folder_and_an_archive_work(run, tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "beside.py").write_text("def double(_, x): return 2 * x\n")
    (folder / "__main__.py").write_text(
        f"from miniature import Pool\n{PROGRAM}\n"
        "try: import beside\nexcept ImportError: from app import beside\n"
        "with Pool(None, beside.double) as pool: print(pool.map([1]))\n"
    )
    zipapp.create_archive(folder, tmp_path / "app.pyz")
    for command in (["app"], ["app.pyz"], ["-m", "app"]):
        ended = run("", *command)
        assert (ended.stdout, ended.stderr) == ("[2]\n", ""), command


def test_cells_of_a_notebook_work(check):
    # As IPython does it: each cell is executed in the names of a main module without a file.
    check(
        """
        import sys, types
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        cells = [
            "from miniature import Pool",
            "class Point:\\n  def __init__(self, x): self.x = x",
            "def helper(x): return x + 1",
            "def work(_, point): return Point(helper(point.x))",
            "pool = Pool(None, work)",
            "assert pool.map([Point(1)])[0].x == 2",
            "class Point:\\n  def __init__(self, x): self.x = -x",
            "assert pool.map([Point(1)])[0].x == 0",
            "def helper(x): return x + 10",
            "assert pool.map([Point(1)])[0].x == 0",
            "pool.kill()",
            "pool = Pool(None, work)",
            "answer = pool.map([Point(1)])[0]",
            "assert type(answer) is Point and answer.x == -9",
            "pool.kill()",
        ]
        for cell in cells:
            exec(compile(cell, "<cell>", "exec"), vars(main))
        """
    )


def test_the_search_path_is_as_it_was_meant(run, tmp_path):
    (tmp_path / "part.py").write_text("def work(_, x):\n    import further\n    return further.add(x)\n")
    (tmp_path / "further.py").write_text("def add(x): return x + 1\n")
    for line in ("import part, os; os.chdir('/')", "import os, sys, part; sys.path.remove(''); os.chdir('/')"):
        ended = run(f"{line}\nwith Pool(None, part.work) as pool: print(pool.map([1]))", "-c")
        assert (ended.stdout, ended.stderr) == ("[2]\nok\n", ""), line


def test_the_worker_has_the_arguments_and_a_main_module_of_its_own(check):
    check(
        """
        import sys
        sys.argv = ["script.py", "--fast"]
        flag = 1
        def work(_, x):
            import pathlib, __main__
            kept = 1
            return sys.argv, hasattr(__main__, "pool"), pathlib.Path(__file__).name, __name__
        with Pool(None, work) as pool:
            assert pool.map([1]) == [(["script.py", "--fast"], False, "script.py", "__main__")]
        """
    )


def test_globals_travel_as_they_are_when_the_pool_is_made(check):
    check(
        """
        import numpy as np, os.path, collections as c
        table = np.arange(200_000)
        constant = "before"
        class Config: size = 1
        def inner(): return Config.size + int(table[7])
        def work(_, x): return constant, under_guard, inner(), os.path.basename("a/b"), type(c.OrderedDict()).__name__
        if __name__ == "__main__":
            under_guard = 5
            Config.size = 2
            with Pool(None, work) as pool:
                constant = "after"
                Config.size = 3
                expected = ("before", 5, 9, "b", "OrderedDict")
                assert pool.map([1, 2]) == [expected] * 2
                pool.restart()
                assert pool.map([1]) == [expected]
                # Once for each worker, and not with each item.
                assert sum(map(len, pool.packed([1])[0])) < 100
        """
    )


def test_load_and_work_have_the_same_globals(check):
    check(
        """
        model = None
        calls = 0
        def load(_):
            global model
            model = "loaded"
        def work(_, x):
            global calls
            calls += 1
            import __main__
            return model, calls, __main__.model, __main__.calls
        with Pool(load, work) as pool:
            assert pool.map([1, 2]) == [("loaded", 1, "loaded", 1), ("loaded", 2, "loaded", 2)]
        """
    )


def test_functions_of_all_kinds_travel(check):
    check(
        """
        import functools, operator, typing
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        def factorial(n): return 1 if n == 0 else n * factorial(n - 1)
        def twice(function):
            @functools.wraps(function)
            def both(*arguments): return function(*arguments) * 2
            return both
        @twice
        def decorated(x): return x + 1
        @functools.lru_cache(maxsize=None)
        def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        @functools.singledispatch
        def name_of(x): return "any"
        @name_of.register(int)
        def _(x): return "int" if x == 0 else name_of("recursion")
        Number = typing.NewType("Number", int)
        def typed(x: Number) -> "Number": return x
        def around(n):
            def closure(x, *, more=10): return x + n + more
            return closure
        class Tool:
            kind = 4
            def __init__(self, n): self.n = n
            def method(self, x): return self.n + x
            @classmethod
            def of_class(cls, x): return cls.kind + x
            @staticmethod
            def static(x): return x - 1
            @property
            def doubled(self): return 2 * self.n
            @functools.cached_property
            def lazy(self): return 2 * self.n
            @functools.singledispatchmethod
            def kind_of(self, x): return "any"
            @kind_of.register(int)
            def _(self, x): return "int"
            def __private(self, x): return self.n * x
            def give(self): return self.__private
            def __call__(self, x): return self.doubled * x
        def nested(x):
            class Local:
                base = factorial(3)
                values = [base + 1]
            return Local.values[0] + x
        def work(_, call):
            function, argument = call
            return function(argument)
        calls = [
            (even, 10), (odd, 7), (factorial, 5), (decorated, 1), (around(5), 1),
            (fibonacci, 90), (lambda x: fibonacci(x), 30), (typed, 3), (name_of, 0), (name_of, 1),
            (lambda tool: (tool.lazy, tool.lazy), Tool(1)), (lambda tool: (tool.kind_of(1), tool.kind_of('')), Tool(1)),
            (lambda x, y=4: x + y + factorial(3), 1),
            (functools.partial(operator.add, 3), 4), (functools.partial(around(1), more=3), 4), (Tool(2).method, 1),
            (Tool.of_class, 1), (Tool.static, 9), (lambda tool, method=Tool.method: method(tool, 1), Tool(4)),
            (Tool(3).give(), 3), (Tool(2), 5), (nested, 1), (len, "abc"),
            ("abc".upper().__eq__, "ABC"), (dict.fromkeys, "ab"), (operator.itemgetter(1), "xyz"), (str.upper, "a"),
        ]
        expected = [function(argument) for function, argument in calls]
        partial = functools.partial(lambda f, _, call: f(*call), lambda g, x: g(x))
        for work in (work, lambda _, call: call[0](call[1]), partial):
            with Pool(None, work) as pool:
                assert pool.map(calls) == expected
        class Runner:
            def __init__(self): self.calls = 0
            def work(self, state, call):
                self.calls += 1
                return call[0](call[1])
        with Pool(None, Runner().work) as pool:
            assert pool.map(calls) == expected
            assert pool.map([(id, even)]) != [id(even)]
        with Pool(None, lambda _, x: x) as pool:
            assert pool.map([even, around])[0] is even
            assert pool.map([Tool.method, Tool.static]) == [Tool.method, Tool.static]
            assert pool.map([lambda: factorial(4)])[0]() == 24
        """
    )


def test_functions_of_modules_that_only_the_driver_has_travel(check, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "loaded.py").write_text("raise SystemExit('another module of this name')\n")
    (tmp_path / "elsewhere" / "loaded.py").write_text("offset = 5\ndef add(x): return x + offset\nclass Kind: pass\n")
    (tmp_path / "beside.py").write_text("class Kind: pass\n")
    check(
        """
        import sys, types, importlib.util
        made = types.ModuleType("made")
        exec("def triple(_, x): return factor * x\\nfactor = 3\\nclass Kind: __module__ = 'made'", vars(made))
        sys.modules["made"] = made
        spec = importlib.util.spec_from_file_location("loaded", "elsewhere/loaded.py")
        loaded = sys.modules["loaded"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        with Pool(None, made.triple) as pool:
            assert pool.map([2]) == [6]
        import beside
        def work(_, x): return made.triple(None, x) + loaded.add(x), made.Kind(), loaded.Kind(), beside.Kind()
        with Pool(None, work) as pool:
            ((number, *kinds),) = pool.map([2])
            assert number == 13
            assert [type(kind) for kind in kinds] == [made.Kind, loaded.Kind, beside.Kind]
        """
    )


def test_a_task_can_have_a_pool_of_its_own(check):
    check(
        """
        class Point:
            def __init__(self, x): self.x = x
        def inner(_, point): return Point(point.x + 1)
        def work(_, point):
            with Pool(None, inner) as pool:
                (answer,) = pool.map([point])
            assert type(answer) is Point
            return answer
        with Pool(None, work) as pool:
            (answer,) = pool.map([Point(1)])
        assert type(answer) is Point and answer.x == 2
        """
    )


BAD = {
    "lock": "import threading\nbad = threading.Lock()",
    "TextIOWrapper": "bad = open(__file__)",
    "BufferedReader": "bad = open(__file__, 'rb')",
    "socket": "import socket\nbad = socket.socket()",
    "generator": "bad = (x for x in [1])",
    "Thread": "import threading\nbad = threading.Thread()",
    "Connection": "import sqlite3\nbad = sqlite3.connect(':memory:')",
    "list": "import threading\nbad = [threading.Lock()]",
}


@pytest.mark.parametrize("kind", BAD)
def test_a_global_that_cannot_travel_is_named(run, kind):
    text = """
import pickle, warnings
warnings.simplefilter("ignore")
class Helper:
    def run(self): return bad
def inner(): return Helper().run()
def work(_, x): return inner()
try:
    Pool(None, work)
except pickle.PicklingError as error:
    print(error)
"""
    ended = run(BAD[kind] + "\n" + text)
    assert ended.stdout.startswith("`Helper.run` uses the global `bad`, and an object of type "), ended
    assert kind in ended.stdout and "make it in `load`" in ended.stdout and ended.stdout.endswith("\nok\n")


def test_other_names_that_cannot_travel_are_named(check):
    check(
        """
        import functools, pickle, threading
        lock = threading.Lock()
        class Holder:
            lock = lock
        class Runner:
            def __init__(self): self.held = lock
            def work(self, _, x): pass
        def closure():
            inside = lock
            return lambda _, x: inside
        def default(_, x, held=lock): pass
        def with_class(_, x): return Holder
        for work, words in [
            (closure(), ["variable `inside`", "closure.<locals>.<lambda>"]), (default, ["`default`", "default"]),
            (with_class, ["`Holder`", "attribute `lock`"]), (Runner().work, ["`Runner.work`", "`self.held`"]),
            (functools.partial(default, held=lock), ["argument `held`"]),
        ]:
            try:
                Pool(None, work)
                raise SystemExit(work)
            except pickle.PicklingError as error:
                assert all(word in str(error) for word in [*words, "_thread.lock", "make it in `load`"]), error
        """
    )
