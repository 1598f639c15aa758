"""The steps of a pipeline, and the stages that they make."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple, Optional, Union

from gangline._broker import Nats, refuse_with_nats
from gangline._nats import setup_text
from gangline._options import Options, at_least, callables, checked_start, one_of
from gangline._pickling import Sender
from gangline._shown import one_line
from gangline._stage_options import checked_options, name_of
from gangline._stages import Expansion, StageValues, no_state, start_here
from gangline._workers import native_options, native_stage

__all__ = ["Expand", "Gather", "Line", "Settings", "Step", "Steps", "line_of"]


class Stage(NamedTuple):
    """Workers that call a function."""

    name: str
    #: ``load``, ``work`` and ``end``.
    functions: tuple[Any, Any, Any, Any]
    options: Options
    #: Whether the workers are threads.
    is_here: bool


class Expand(NamedTuple):
    """A function between two stages that makes parts of each output."""

    name: str
    function: Callable[[Any], Iterable[Any]]
    open_parents: Optional[int]


class Gather(NamedTuple):
    """The end of an expansion."""

    name: str = "gather"


#: One of a pipeline, in their order.
Step = Union[Stage, Expand, Gather]


class Settings(NamedTuple):
    """The options of a whole pipeline."""

    options: Options = Options()
    order: str = "input"
    key: Optional[Callable[[Any], Any]] = None
    progress: Union[bool, str] = False


class Line(NamedTuple):
    """A pipeline that is ready to start workers."""

    #: As the native part reads them.
    stages: list[dict[str, Any]]
    #: Those of the driver: of inputs and of the outputs of the last stage.
    values: StageValues


class Steps:
    """The steps of a pipeline, to which others are added."""

    def __init__(self, steps: tuple[Step, ...], settings: Settings) -> None:
        self._steps = steps
        self._settings = settings

    def _with_stage(self, functions: tuple[Any, ...], options: dict[str, Any]) -> tuple[Step, ...]:
        if len(functions) not in (1, 2):
            raise TypeError(f"a stage has work, or load and work, got {len(functions)} functions")
        load, work = (None, *functions) if len(functions) == 1 else functions
        finish, end = options.pop("finish", None), options.pop("end", None)
        callables(load=load, work=work, finish=finish, end=end)
        if work is None:
            raise TypeError("work must be a function, got None")
        if len(functions) == 2 and load is None:
            load = no_state
        name = options.pop("name", None)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a text, got {name!r}")
        name = name or name_of(work)
        at_least(1, window=options.get("window"))
        if options.get("nats") is not None:
            refuse_with_nats(options)
        backend = options.pop("backend", "processes")
        one_of("backend", backend, ("processes", "threads"))
        fork_server = checked_start(options.pop("start", "spawn"), backend)
        checked = checked_options(options, self._settings.options)._replace(fork_server=fork_server)
        self._refuse_shared_namespace(name, checked.nats)
        return (*self._steps, Stage(self._free(name), (load, work, finish, end), checked, backend == "threads"))

    def _refuse_shared_namespace(self, name: str, nats: Optional[Nats]) -> None:
        """Fail if an earlier stage has the same workers. Each serves one stage, so the other would wait."""
        for step in self._steps:
            other = step.options.nats if isinstance(step, Stage) else None
            if other is not None and nats is not None and nats.has_workers_of(other):
                raise ValueError(
                    f"stages {step.name} and {name} have the workers of one namespace, {nats.namespace!r}, and each "
                    f"serves one stage: give one of them another, such as gangline.Nats(url, namespace='{name}')"
                )

    def _with_expansion(
        self, function: Callable[[Any], Iterable[Any]], open_parents: Optional[int]
    ) -> tuple[Step, ...]:
        callables(expand=function)
        if function is None:
            raise TypeError("expand needs a function, got None")
        at_least(1, open_parents=open_parents)
        return (*self._steps, Expand(self._free(name_of(function)), function, open_parents))

    def _free(self, name: str) -> str:
        """Return this name, or with a number if another step has it: an error names one step."""
        taken = {step.name for step in self._steps}
        numbered = (f"{name} {number}" for number in itertools.count(2))
        return next(each for each in itertools.chain([name], numbered) if each not in taken)

    def _names(self) -> str:
        return ", ".join(one_line(step.name) for step in self._steps)


def line_of(steps: tuple[Step, ...], whole: Options) -> Line:
    """Pickle the functions of all stages, and describe the stages to the native part."""
    if not any(isinstance(step, Stage) for step in steps):
        raise ValueError("a pipeline needs a stage: Pipeline().stage(work)")
    functions = [step.functions if isinstance(step, Stage) and not step.is_here else None for step in steps]
    # One for all stages, so that each knows the classes of the main script that the others use.
    sender = Sender(tuple(each for each in functions if each is not None)) if any(functions) else None
    indices = itertools.count()
    stages: list[dict[str, Any]] = []
    joining: Union[Expand, Gather, None] = None
    # Of the parts that an expansion makes.
    parts = StageValues(None, gives_objects=True)

    def add(options: Optional[dict[str, Any]], name: str, workers: int = 0, **place: Any) -> None:
        nonlocal joining
        expansion = None
        if isinstance(joining, Expand):
            function = Expansion(joining.function, parts)
            open_parents = joining.open_parents
            if open_parents is None and stages[-1]["options"] is None:
                # The stage before has no workers, so this one's say how many parents keep them busy.
                open_parents = 2 * workers
            expansion = {"name": joining.name, "function": function, "open_parents": open_parents}
        gathers = isinstance(joining, Gather)
        stages.append(native_stage(options, name=name, expansion=expansion, gathers=gathers, **place))
        joining = None

    for place, step in enumerate(steps):
        if isinstance(step, Stage):
            window, workers = step.options.window or whole.window, step.options.count_workers()
            if sender is None or step.is_here:
                values = driver_values(steps, sender, place)
                setup: Any = functools.partial(start_here, step.functions, values)
                add(native_options(step.options, setup), step.name, workers, window=window)
            else:
                setup = sender.setup if step.options.nats is None else setup_text(sender, functions)
                options = native_options(step.options, setup, functions)
                add(options, step.name, workers, window=window, index=next(indices))
            continue
        if joining is not None or not stages:
            # Two joints in a row, or one before the first stage.
            add(None, "input" if joining is None else joining.name)
        joining, parts = step, driver_values(steps, sender, place)
    if joining is not None:
        add(None, joining.name)
    return Line(stages, driver_values(steps, sender, -1))


def driver_values(steps: tuple[Step, ...], sender: Optional[Sender], place: int) -> StageValues:
    """Return how values are packed in this process behind this step, by a thread or an expansion; at -1, inputs are.

    Where only threads of this process get them, they are objects.
    """
    last = place + 1 == len(steps)
    following = None if last else steps[place + 1]
    is_here = last or (isinstance(following, Stage) and following.is_here)
    return StageValues(sender, gives_objects=sender is None or is_here)
