"""Answers to what-if questions, computed step by step in workers and streamed as lines of JSON.

A worker keeps the last questions with what was planned and built for them, so that the steps of an
answer may be carried out by different workers. The process that answers requests hands functions
over by name, so that it is up before the simulation is loaded.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, to_thread

from tuner import db
from tuner.api.problems import status_of
from tuner.api.service import MAX_CONCURRENT_STEPS, MAX_OPEN_ANSWERS, Service
from tuner.api.workers import WorkerCall
from tuner.base.errors import InputError
from tuner.whatif.best_calls import BestCalls, BestTimedCall, PricedTask

if TYPE_CHECKING:
    from tuner.whatif.live_study import LiveStudy

Result = TypeVar("Result")
Line = dict[str, Any]
Send = Callable[[Line], None]

STEP_SECONDS = 0.05  # of one step, after which an abandoned question is given up
MAX_STEP_TASKS = 8  # so that the steps of an answer share its tasks
MAX_LANES = 2  # steps of one answer at the same time
MAX_ANSWER_SECONDS = 60.0  # of work on one answer; what is left then is not priced
LIMITS_AFTER_SECONDS = 2.0  # what limits the best calls is said then, and again where they change
MAX_CACHED_QUESTIONS = MAX_OPEN_ANSWERS  # per worker, each with its machine and routes

SMALL_STUDY = {  # of a machine on which every algorithm is a candidate
    "name": "small",
    "topology": "preset:dgx-h100",
    "vary": {"nodes": [2]},
    "collectives": ["allreduce"],
    "sizes": [4 << power for power in range(27)],
}


def start_warm_up(service: Service, load: Callable[[], None]) -> None:
    """Have a worker load what answers need, or compile it, so that the first one need not wait.

    While one does, no other is asked: pages may be loaded without a token, and often.
    """
    if load.__name__ not in service.tasks:
        task = asyncio.create_task(_warm_up(service, load))
        service.tasks[load.__name__] = task
        task.add_done_callback(lambda _: service.tasks.pop(load.__name__))


async def _warm_up(service: Service, load: Callable[[], None]) -> None:
    with suppress(db.UnavailableError):  # the question that follows meets the same and says so
        await run_long(service, load)


class LiveAnswer:
    """An answer that is still to be computed.

    key         under which the answer is kept once it is whole
    question    the JSON of a study of one machine and one collective
    first       labels of the schedules to begin with
    ahead       whether no client waits for it: answers that are waited for have precedence
    """

    def __init__(
        self, service: Service, key: str, question: str, first: Sequence[str], ahead: bool
    ) -> None:
        self._service, self._key, self._question = service, key, question
        self._first, self._ahead = tuple(first), ahead
        self._best = BestCalls()
        self._left = list[int]()  # tasks that are not priced, in order
        self._n_done = 0  # tasks
        self._limited: dict[int, BestTimedCall] = {}  # those whose gains were sent
        self._limits_at = math.inf
        self._end = math.inf  # when the work on it ends, complete or not

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the answer, and keep it once it is whole.

        The first one is there at once. A question that turns out to have no answer ends with the
        problem, as the status has been sent by then. Lines wait for whoever reads slowly, so that
        nobody else has to.
        """
        ready = asyncio.Queue[bytes | None]()
        work = asyncio.create_task(self._fill(ready))
        self._service.open_answers.add(self)
        try:
            yield _encoded({"kind": "begun"})
            while (line := await ready.get()) is not None:
                yield line
            await work
        finally:
            work.cancel()
            self._service.open_answers.discard(self)

    async def _fill(self, ready: asyncio.Queue[bytes | None]) -> None:
        """Put all lines into a queue, and None after the last."""
        service, sent = self._service, list[bytes]()

        def send(line: Line) -> None:
            sent.append(_encoded(line))
            ready.put_nowait(sent[-1])

        slots = service.slots_ahead if self._ahead else service.answer_slots
        try:
            with nullcontext() if self._ahead else service.awaited:
                async with slots:
                    if not await run_step(service, _is_ready):
                        ready.put_nowait(_encoded({"kind": "compiling"}))
                        await run_long(service, _compile)
                    await self._compute(send)
            if not self._left:
                service.answers.add(self._key, b"".join(sent))
        except (InputError, db.UnavailableError) as reason:
            problem = {"kind": "problem", "status": status_of(reason), "detail": str(reason)}
            ready.put_nowait(_encoded(problem))
        finally:
            ready.put_nowait(None)

    async def _compute(self, send: Send) -> None:
        """Send the lines from the outline to the end."""
        outline, self._left = await self._on_worker(_plan, self._first)
        send({"kind": "outline", **outline})
        begun, n_tasks = time.monotonic(), len(self._left)
        self._limits_at = begun + LIMITS_AFTER_SECONDS
        self._end = begun + MAX_ANSWER_SECONDS
        lanes = [
            asyncio.create_task(self._price(n_tasks, outline, send))
            for _ in range(1 if self._ahead else min(MAX_LANES, MAX_CONCURRENT_STEPS))
        ]
        try:
            await asyncio.gather(*lanes)
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        names = await self._on_worker(_names, self._left) if self._left else []
        await self._send_gains(outline["resources"], send)
        send({"kind": "end", "skipped": names})

    async def _price(self, n_tasks: int, outline: Line, send: Send) -> None:
        """Price tasks that are left, step by step, and send their times."""
        while self._left and time.monotonic() < self._end:
            numbers, self._left = self._left[:MAX_STEP_TASKS], self._left[MAX_STEP_TASKS:]
            done, priced = await self._on_worker(_price, numbers, self._best.copy())
            self._left = numbers[done:] + self._left
            for one in priced:
                self._best.add(one)
            self._n_done += done
            times = [one.record() for one in priced]
            send({"kind": "times", "done": self._n_done / n_tasks, "tasks": times})
            is_useful = len(self._best.of_all()) == len(outline["sizes"])
            if is_useful and time.monotonic() > self._limits_at:
                self._limits_at = math.inf
                await self._send_gains(outline["resources"], send)

    async def _send_gains(self, resources: Iterable[str], send: Send) -> None:
        """Send what each resource would gain, where that is not said yet, and what limits."""
        found, shares = self._best.of_all(), dict[str, list[float | None]]()
        indices = [at for at in sorted(found) if self._limited.get(at) != found[at]]
        best = tuple(found[index] for index in indices)
        self._limited |= {index: found[index] for index in indices}
        for resource in resources if best else ():
            gains = await self._on_worker(_gains, best, resource)
            shares[resource] = await self._on_worker(_shares, best, resource)
            send({"kind": "gains", "resource": resource, "sizes": indices, "gains": gains})
        if best:
            limits = await run_step(self._service, _limits, shares, len(indices))
            send({"kind": "limits", "sizes": indices, "limits": limits})

    async def _on_worker(self, function: Callable[..., Result], *arguments: Any) -> Result:
        if self._ahead:
            begun = time.monotonic()
            await self._service.awaited.none()
            self._end += time.monotonic() - begun  # waiting is no work
        return await run_step(self._service, function, self._question, *arguments)


def _limits(shares: Mapping[str, Sequence[float | None]], count: int) -> list[tuple[str, ...]]:
    """Return the resources that limit each call."""
    from tuner.whatif.machine_resources import limiting_resources

    return [
        limiting_resources(
            {name: share for name, row in shares.items() if (share := row[call]) is not None}
        )
        for call in range(count)
    ]


def _encoded(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


async def run_step(service: Service, function: Callable[..., Result], *arguments: Any) -> Result:
    """Run a short function in a worker, where the service has some, else in a thread."""
    return await _run_on_worker(service, service.step_limiter, function, *arguments)


async def run_long(service: Service, function: Callable[..., Result], *arguments: Any) -> Result:
    """Run a function that takes seconds in a worker, beside the short ones."""
    return await _run_on_worker(service, service.long_limiter, function, *arguments)


async def _run_on_worker(
    service: Service, limiter: CapacityLimiter, function: Callable[..., Result], *arguments: Any
) -> Result:
    """Run a function, which its worker gives up if the caller is cancelled."""
    workers, call = service.workers, WorkerCall()
    run = partial(workers.run, function, call=call) if workers is not None else function
    running = asyncio.create_task(to_thread.run_sync(run, *arguments, limiter=limiter))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if workers is None or not call.give_up():
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise


def _is_ready() -> bool:
    """Return whether all is compiled that answers need."""
    from tuner.sim.jit import NotCompiledError

    try:
        _load_compiled()
    except NotCompiledError:
        return False
    return True


@cache
def _load_compiled() -> None:
    """Load what is compiled, once; raise NotCompiledError where something is not."""
    from tuner.sim.jit import forbid_compilation
    from tuner.sim.warmup import simulate_examples

    with forbid_compilation():
        simulate_examples()


def _compile() -> None:
    from tuner.sim.warmup import simulate_examples

    simulate_examples()


@lru_cache(MAX_CACHED_QUESTIONS)
def _live_study(question: str) -> LiveStudy:
    from tuner.whatif.live_study import LiveStudy

    return LiveStudy.from_record(json.loads(question))


def _plan(question: str, first: Sequence[str]) -> tuple[Line, list[int]]:
    study = _live_study(question)
    order = study.order(first)
    if not order:
        raise InputError("every schedule takes too long to be priced here: take fewer nodes")
    return study.outline(), order


def _price(question: str, numbers: Sequence[int], best: BestCalls) -> tuple[int, list[PricedTask]]:
    """Return how many tasks were priced, and their times."""
    return _live_study(question).price(numbers, STEP_SECONDS, best)


def price_small_study() -> None:
    """Answer a small question, which loads all that others need, or compiles it."""
    _compile()
    question = json.dumps(SMALL_STUDY)
    _, order = _plan(question, ())
    _live_study(question).price(order, STEP_SECONDS, BestCalls())


def _names(question: str, numbers: Sequence[int]) -> list[str]:
    return _live_study(question).names(numbers)


def _gains(question: str, best: Sequence[BestTimedCall], resource: str) -> list[float | None]:
    return _live_study(question).gains(best, resource)


def _shares(question: str, best: Sequence[BestTimedCall], resource: str) -> list[float | None]:
    return _live_study(question).shares(best, resource)
