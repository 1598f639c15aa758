"""Values between a driver and a worker, each in a process of its own."""

import pytest

pytest.importorskip("cloudpickle")


def test_classes_of_the_script_come_back_as_the_drivers_own(check):
    check(
        """
        import abc, collections, dataclasses, enum, typing
        T = typing.TypeVar("T")
        @dataclasses.dataclass
        class Point:
            x: int
            tags: list = dataclasses.field(default_factory=list)
        @dataclasses.dataclass(frozen=True)
        class Frozen:
            z: float = 1.5
        @dataclasses.dataclass
        class Solid(Point):
            z: float = 1.5
        class Color(enum.Enum):
            RED = 1
            BLUE = "b"
            def shout(self): return self.name + "!"
        class Planet(enum.Enum):
            EARTH = (5.97e24, 6.37e6)
            WORLD = EARTH
            MARS = (6.42e23, 3.39e6)
            def __init__(self, mass, radius): self.mass, self.radius = mass, radius
        class Access(enum.IntFlag):
            READ = enum.auto()
            WRITE = enum.auto()
        class Pair(typing.NamedTuple):
            a: int
            b: str = "b"
        Old = collections.namedtuple("Old", "p q")
        class Outer:
            class Inner:
                def __eq__(self, other): return type(other) is Outer.Inner
                def __hash__(self): return 1
        class Box(typing.Generic[T]):
            def __init__(self, content: T): self.content = content
            def __eq__(self, other): return type(other) is Box and self.content == other.content
        class Slots:
            __slots__ = ("a", "__dict__")
            def __eq__(self, other): return self.a == other.a
        class More(Slots):
            __slots__ = "b"
        class Base(abc.ABC):
            @abc.abstractmethod
            def name(self): ...
        class Derived(Base):
            def __init__(self): self.made = True
            def name(self): return "derived"
            def __eq__(self, other): return type(other) is type(self) and other.made
        class Further(Derived):
            def name(self): return super().name() + " further"
        class Registry(type):
            def __new__(mcs, name, bases, names):
                made = super().__new__(mcs, name, bases, names)
                made.registered = True
                return made
        class Registered(metaclass=Registry):
            def __eq__(self, other): return type(other) is Registered and type(other).registered
        class Oops(ValueError):
            def __init__(self, text, code=3):
                super().__init__(text)
                self.code = code
        class Listed(list): pass
        more = More()
        more.a, more.b = 1, 2
        further = Further()
        values = [
            Point(1, ["a"]), Frozen(1), Solid(1), Color.RED, Color.BLUE, Access.READ | Access.WRITE,
            Pair(1), Old(1, 2), Planet.MARS,
            Outer.Inner(), Box(3), more, Derived(), further, Registered(), Listed([1]),
            [Point(2), (Color.RED, {"k": Pair(3)})],
        ]
        classes = [Registry, Point, Color, Planet, Access, Pair, Old, Outer, Outer.Inner, Box, More, Base, Further]
        def ours(_, x):
            if isinstance(x, Color): assert x in (Color.RED, Color.BLUE) and x.shout() == x.name + "!"
            if isinstance(x, Planet): assert x.radius == 3.39e6 and Planet.WORLD is Planet.EARTH
            if isinstance(x, More): assert x.b == 2 and "b" in dir(More) and More.__mro__[1] is Slots
            if isinstance(x, Further): assert x.name() == "derived further"
            return x
        def blind(_, x): return x
        for work in (ours, blind):
            with Pool(None, work) as pool:
                for _ in range(2):
                    back = pool.map(values)
                    assert back == values, [pair for pair in zip(back, values) if pair[0] != pair[1]]
                    assert [type(value) for value in back] == [type(value) for value in values]
                    assert back[3] is Color.RED and back[11].b == 2
                    assert [kind is own for kind, own in zip(pool.map(classes), classes)] == [True] * len(classes)
                    (error,) = pool.map([Oops("bad", 3)])
                    assert type(error) is Oops and error.args == ("bad",) and error.code == 3
                    pool.restart()
        """
    )


def test_the_worker_has_one_class_for_all_values(check):
    check(
        """
        class Point:
            def __init__(self, x): self.x = x
        class Late(Point): pass
        seen = []
        def work(_, x):
            seen.append(type(x))
            # As joblib and PyTorch do it.
            import pickle
            assert type(pickle.loads(pickle.dumps(x))) is type(x)
            return len(set(seen)), issubclass(seen[-1], seen[0])
        with Pool(None, work) as pool:
            assert pool.map([Point(1), Point(2), Late(1)]) == [(1, True), (1, True), (2, True)]
            assert pool.map([Late(2)]) == [(2, True)]
        """
    )


def test_a_definition_that_a_worker_lacks_comes_with_each_value(check):
    check(
        """
        def work(_, x): return type(x)()
        with Pool(None, work) as pool:
            class Late:
                def __eq__(self, other): return type(other) is Late
            class Later(Late): pass
            message = pool.packed([Late(), Later()])
            for each in (message, message[1:], message[:1]):
                pool.restart()
                for ok, (stream, buffers) in pool.answers(each):
                    (value,) = pool.sender.unpack([(stream, buffers)])
                    assert type(value) in (Late, Later)
        """
    )


def test_classes_that_a_worker_makes_arrive(check):
    check(
        """
        import collections
        def work(_, x):
            Made = collections.namedtuple("Made", "x y")
            class Local(Exception):
                def twice(self): return 2 * self.args[0]
            return Made(x, 1), Local(x), lambda y: x + y
        import gc, weakref
        classes = []
        with Pool(None, work) as pool:
            for x in range(600):
                ((made, local, add),) = pool.map([x])
                assert (made.x, made.y, local.twice(), add(1)) == (x, 1, 2 * x, x + 1)
                classes.append(weakref.ref(type(made)))
        # What is not used any more is not kept, save for the last ones.
        gc.collect()
        assert sum(each() is not None for each in classes) < 300
        """
    )


def test_a_class_stays_the_same_beside_many_others(check):
    check(
        """
        seen = []
        def work(_, x):
            if not seen: seen.append(type(x))
            return type(x) is seen[0], x, type("Made", (), {})()
        with Pool(None, work) as pool:
            class Late: pass
            def make(number): return type("Local", (), {"number": number})
            first = Late()
            for value in (first, *(make(number)() for number in range(300)), first):
                ((is_first, back, made),) = pool.map([value])
                assert is_first == isinstance(value, Late) and type(back) is type(value)
                assert type(made).__name__ == "Made"
            many = [make(number) for number in range(600)]
            ((_, back, _),) = pool.map([[kind() for kind in many]])
            assert [type(value) for value in back] == many
        """
    )


def test_definitions_are_passed_on_and_kept(check):
    check(
        """
        import gc, weakref
        from gangline._pickling import Sender
        def new(): return Sender((None, print, None))
        def joined(packed): return b"".join(packed[0]), packed[1]
        def send(value, source, target): return target.unpack([joined(source.pack([value])[0])])[0]
        class Inner: pass
        class Outer: inner = Inner
        first, second, third = new(), new(), new()
        inner = send(Inner(), first, second)
        outer = send(Outer(), first, second)
        assert type(outer).inner is type(inner) is not Inner
        # The second one needs the first one, also where that never was alone.
        passed_on = send(outer, second, third)
        assert type(passed_on).__name__ == "Outer" and type(passed_on).inner.__name__ == "Inner"

        first, second = new(), new()
        outer = send(Outer(), first, second)
        inner = type(outer).inner()
        kind = weakref.ref(type(outer))
        del outer
        gc.collect()
        assert kind() is not None, "it would be rebuilt for each value"
        for number in range(300):
            send(type("Local", (), {"number": number})(), first, second)
        gc.collect()
        assert kind() is None
        assert type(send(Outer(), first, second)).__name__ == "Outer"
        assert type(send(Inner(), first, second)) is type(inner), "the one that was alive"
        """
    )


def test_a_class_that_is_made_for_each_value_is_forgotten(check):
    check(
        """
        import gc, weakref
        classes = []
        def work(_, x): return x.x
        def make(number):
            class Local: x = number
            classes.append(weakref.ref(Local))
            return Local()
        with Pool(None, work) as pool:
            for number in range(600):
                assert pool.map([make(number)]) == [number]
        gc.collect()
        assert sum(each() is not None for each in classes) < 300
        """
    )


def test_plain_values_come_back_equal(check):
    check(
        """
        import array, datetime, decimal, fractions, math, pathlib, re, uuid, collections
        nested = []
        for _ in range(300):
            nested = [nested]
        same = [1]
        values = [
            nested, "caf\\udce9.mrc", "\\ud800", 1 << 80, -(1 << 80), {1, 2}, frozenset("ab"), pathlib.Path("a/b"),
            1 + 2j,
            b"bytes", bytearray(b"array"), "x" * 1_000_000, b"y" * 1_000_000, ["z" * 100_000] * 3, None, True, 1.5, (),
            math.inf, {"k": (1, [2])}, {(1, 2): 3}, range(5), slice(1, 2), ..., NotImplemented, decimal.Decimal("0.1"),
            datetime.datetime(2020, 1, 2), uuid.UUID(int=3), re.compile("a+"), fractions.Fraction(1, 3), int,
            type(None),
            array.array("d", [1.0]), collections.Counter("aab"), collections.OrderedDict(a=1), [same, same],
        ]
        with Pool(None, lambda _, x: x) as pool:
            assert pool.map(values) == values
            (nan,) = pool.map([math.nan])
            assert math.isnan(nan)
            ((one, two),) = pool.map([[same, same]])
            assert one is two
            loop = []
            loop.append(loop)
            (loop,) = pool.map([loop])
            assert loop[0] is loop
            view = memoryview(array.array("d", range(6))).cast("B").cast("d", (2, 3))
            for each in (view, view.cast("B"), memoryview(bytes(100_000)), memoryview(b"abcdef")[::2]):
                (back,) = pool.map([each])
                assert type(back) is memoryview and back.tolist() == each.tolist() and back.format == each.format
            (keys, items) = pool.map([{"a": 1}.keys(), {"a": 1}.items()])
            assert list(keys) == ["a"] and list(items) == [("a", 1)]
            (error,) = pool.map([ValueError("bad", 3)])
            assert type(error) is ValueError and error.args == ("bad", 3)
        """
    )


def test_arrays_can_be_written_to_and_are_nobody_elses(check):
    check(
        """
        import numpy as np
        def work(_, x):
            x += 1
            return x
        with Pool(None, work) as pool:
            for size in (3, 100_000):
                own = np.zeros(size)
                message = pool.packed([own])
                assert bool(message[0][1]) == (size > 1000)
                # The second time is what an item gets that is tried again.
                for _ in range(2):
                    for _, answer in pool.answers(message):
                        (back,) = pool.sender.unpack([(answer[0], [bytearray(buffer) for buffer in answer[1]])])
                        back += 1
                        assert own[0] == 0 and back.tolist() == [2.0] * size
            assert pool.map([np.arange(10)[::2]])[0].tolist() == [1, 3, 5, 7, 9]
            assert pool.map([np.asfortranarray(np.ones((50, 60)))])[0].flags.f_contiguous
        """
    )


def test_an_item_that_cannot_be_pickled_fails_alone(check):
    check(
        """
        import threading
        from gangline._errors import describe
        from gangline._pickling import Sender, Unreadable
        class Bad:
            def __init__(self, error): self.error = error
            def __reduce__(self): raise self.error
        class Worse:
            def __reduce__(self): return fail, ()
        def fail(): raise SystemExit(3)
        sender = Sender((None, print, None))
        values = [1, threading.Lock(), "x" * 100_000, Bad(ValueError("own")), Bad(SystemExit(1)), Worse(), [2]]
        packed = sender.pack(values)
        kinds = [type(each).__name__ for each in packed]
        assert kinds == ["tuple", "TypeError", "tuple", "ValueError", "SystemExit", "tuple", "tuple"]
        good = [(b"".join(each[0]), each[1]) for each in packed if isinstance(each, tuple)]
        one, text, worse, two = sender.unpack(good)
        assert (one, text, two) == (1, "x" * 100_000, [2])
        assert isinstance(worse, Unreadable) and isinstance(worse.error, SystemExit)
        traceback = describe(worse.error).traceback
        assert "in fail" in traceback and "_pickling.py" not in traceback, traceback
        broken = sender.unpack([(b"", ()), (b"\\x80\\x05.", ()), (b"D", [])])
        assert all(isinstance(each, Unreadable) for each in broken)
        lock = threading.Lock()
        shared = ["shared"]
        bad, good = sender.pack([[shared, "x" * 100_000, lock], [shared]])
        assert isinstance(bad, TypeError)
        assert sender.unpack([(b"".join(good[0]), good[1])]) == [[shared]]
        assert len(b"".join(good[0])) < 100, "what the other one has written is left out"
        for value in (lambda: lock, [1, lambda: lock]):
            (error,) = sender.pack([value])
            assert "uses the global `lock`" in str(error), error
        """
    )


def test_ctrl_c_belongs_to_no_value(check):
    check(
        """
        import threading
        from gangline._pickling import Receiver, Sender
        class Bad:
            def __reduce__(self): raise KeyboardInterrupt
        sender = Sender((None, print, None))
        try:
            sender.pack([1, Bad()])
            raise SystemExit("nothing was raised")
        except KeyboardInterrupt:
            pass
        # Ctrl-C does not come to other threads, and not to workers.
        packed = []
        thread = threading.Thread(target=lambda: packed.extend(sender.pack([1, Bad(), 2])))
        thread.start()
        thread.join()
        packed += Receiver(sender.setup).pack([1, Bad(), 2])
        assert [isinstance(each, KeyboardInterrupt) for each in packed] == [False, True, False] * 2
        """
    )


def test_large_texts_are_not_copied():
    from gangline._pickling import Sender

    large = bytes(1 << 20)
    ((pieces, _),) = Sender((None, print, None)).pack([["a", large, "b"]])
    assert any(piece is large for piece in pieces)


def test_two_threads_define_a_class_once(check):
    check(
        """
        import threading
        from gangline._pickling import Sender
        both = threading.Barrier(2, timeout=100)
        class Gate:
            def __reduce__(self):
                both.wait()
                return int, ()
        class Kind:
            gate = Gate()
        sender = Sender((None, print, None))
        packed = []
        threads = [threading.Thread(target=lambda: packed.extend(sender.pack([Kind()]))) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        (one, (first,)), (two, (second,)) = packed
        assert bytes(first) == bytes(second)
        """
    )


def test_threads_may_pack_at_once(check):
    check(
        """
        import threading
        from gangline._pickling import Sender
        sender = Sender((None, print, None))
        kinds = [type(f"Kind{n}", (), {"__module__": "__main__", "n": n}) for n in range(20)]
        wrong = []
        def use():
            for kind in kinds:
                ((pieces, buffers),) = sender.pack([kind()])
                (back,) = sender.unpack([(b"".join(pieces), buffers)])
                if type(back) is not kind: wrong.append(back)
        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not wrong, wrong
        """
    )


def test_an_error_is_described(check):
    check(
        """
        import gangline
        class Own(Exception):
            def __str__(self): raise RuntimeError
        class OutOfMemoryError(RuntimeError): pass
        OutOfMemoryError.__module__ = "torch"
        def inner(x): raise x
        def work(_, x):
            try:
                inner(x)
            except KeyError:
                raise ValueError("caf\\udce9") from None
        with Pool(None, work) as pool:
            def failure(error):
                try:
                    pool.map([error])
                except Failed as failed:
                    return failed.args[0]
            name, line, traceback, *flags = failure(KeyError("x"))
            assert (name, line, flags) == ("ValueError", "ValueError: caf\\\\udce9", [False] * 3)
            assert "miniature.py" in traceback and "_pickling" not in traceback
            assert 'script.py", line ' in traceback and "in work" in traceback and 'raise ValueError("caf' in traceback
            assert failure(Own())[1] == "Own: <its text failed: RuntimeError>"
            assert failure(OutOfMemoryError("CUDA out of memory"))[0] == "torch.OutOfMemoryError"
            assert failure(OutOfMemoryError("full"))[3:] == (True, False, False)
            lost = RuntimeError("CUDA error: an illegal memory access was encountered")
            assert failure(lost)[3:] == (False, True, False)
            assert failure(gangline.BadRequest("no"))[3:] == (False, False, True)
            assert failure(SystemExit(2))[0] == "SystemExit"
            assert failure(KeyboardInterrupt())[0] == "KeyboardInterrupt"
        """
    )
