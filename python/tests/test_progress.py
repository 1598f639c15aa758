"""Progress: lines on a terminal and in a notebook, and bars of tqdm."""

import io
import sys
import threading

import pytest

from gangline import Record, _progress
from gangline._progress import Progress


class Screen(io.StringIO):
    """What was written to it, as a notebook or a terminal shows it."""

    def __init__(self, is_terminal):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def shown(self):
        """Return the lines as they were drawn, each as long as the one that it replaced."""
        return self.getvalue().lstrip("\r").rstrip("\n").split("\r")


@pytest.fixture
def screen(monkeypatch):
    def show(*, is_notebook=False, is_terminal=False):
        screen = Screen(is_terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(_progress, "is_notebook", lambda: is_notebook)
        return screen

    return show


def records(count, error=None):
    return [Record(at, None, None, error, (), 0.0, 1) for at in range(count)]


def play(total=100):
    """Count a record every 0.3 seconds of a clock that the test sets, and then two that failed."""
    now = 0.0
    progress = Progress("Reading", total, clock=lambda: now)
    for at in range(1, 11):
        now = at * 0.3
        progress.add(records(1))
    progress.add(records(2, "bad"), left_out=3)
    progress.finish()


def counts(lines):
    return [line.partition(": ")[2].partition(" items")[0] for line in lines]


def test_a_notebook_without_tqdm_has_a_line_each_second(screen, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    seen = screen(is_notebook=True)
    play()
    assert counts(seen.shown()) == ["1/100", "5/100", "9/100", "15/100"]
    assert seen.shown()[-1].startswith("Reading: 15/100 items in 3.0 s, 4.0/s, 2 failed, 3 already done")
    assert seen.getvalue().count("\n") == 1


def test_a_terminal_has_a_line_ten_times_a_second(screen):
    seen = screen(is_terminal=True)
    play()
    assert counts(seen.shown()) == [f"{at}/100" for at in range(1, 11)] + ["15/100"]


def test_a_line_that_is_shorter_leaves_nothing_of_the_one_before(screen):
    seen = screen(is_terminal=True)
    now = 1000.0
    progress = Progress("Reading", None, clock=lambda: now)
    now += 0.001
    progress.add(records(999))
    now += 1000
    progress.add(records(0))
    first, second, *_ = seen.shown()
    assert second.rstrip() == "Reading: 999 items in 1000.0 s, 1.0/s"
    assert len(second) == len(first) > len(second.rstrip())


def test_elsewhere_the_line_appears_once(screen):
    seen = screen()
    play()
    assert counts(seen.shown()) == ["15/100"] and "\r" not in seen.getvalue()


def test_a_notebook_with_tqdm_has_a_bar(screen):
    pytest.importorskip("tqdm")
    seen = screen(is_notebook=True)
    play()
    assert "Reading:" in seen.getvalue() and "15/100" in seen.getvalue() and "failed=2" in seen.getvalue()
    assert not [thread for thread in threading.enumerate() if type(thread).__name__ == "TMonitor"]


def test_a_screen_that_was_closed_stops_nothing(screen):
    for is_terminal in (True, False):
        screen(is_terminal=is_terminal).close()
        play()


def test_a_tqdm_that_fails_leaves_the_line(screen, monkeypatch):
    class Failing:
        class tqdm:
            def __init__(self, **options):
                raise RuntimeError("no bar")

    monkeypatch.setitem(sys.modules, "tqdm.auto", Failing)
    seen = screen(is_notebook=True)
    play()
    assert counts(seen.shown())[-1] == "15/100"
