"""An executor on a Dask cluster: the scheduler distributes the tasks, the workers evaluate them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

import distributed
from distributed import Client, Future

from tuner.base.errors import InputError, TunerError, shortened_repr
from tuner.sim.process_pool import POLL_INTERVAL_S
from tuner.whatif.checked_study import Study
from tuner.whatif.executors import Executor, TaskResults, batch_tasks
from tuner.whatif.study_tasks import StudyTask, TaskEvaluator

ADDRESS_PATTERN = re.compile(r"(?:(?:tcp|tls|ws|wss|ucx)://)?[^\s/]+:([0-9]{1,5})")
MAX_PORT = 65535
TIMEOUT_S = 5.0  # for a scheduler to answer, and to have a worker


def make_dask_executor(address: str) -> Executor:
    """Return an executor for the cluster with this scheduler, such as `tcp://10.0.0.1:8786`.

    Raises InputError when the address is malformed. The executor raises
    InputError when no scheduler answers there or it has no workers.
    """
    match = ADDRESS_PATTERN.fullmatch(address)
    if match is None or int(match[1]) > MAX_PORT:
        raise InputError(
            f"--dask is written like tcp://10.0.0.1:8786, not {shortened_repr(address)}"
        )

    def carry(study: Study, tasks: Mapping[int, StudyTask]) -> Generator[TaskResults]:
        with _mute_dask_logs(), _client(address) as client:
            yield from _run_on_client(client, address, study, tasks)

    return carry


@contextmanager
def _client(address: str) -> Iterator[Client]:
    try:
        client = Client(address, timeout=TIMEOUT_S, set_as_default=False)
    except (OSError, ValueError) as reason:
        raise InputError(
            f"no Dask scheduler answers at {address} within {TIMEOUT_S:g} s ({reason}): start one"
            " with `dask scheduler`, and give the address that it prints"
        ) from None
    try:
        _require_workers(client, address)
        yield client
    finally:
        client.close(timeout=TIMEOUT_S)


def _require_workers(client: Client, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=TIMEOUT_S)
    except TimeoutError:
        raise InputError(
            f"the Dask scheduler at {address} has no workers: start some with"
            f" `dask worker {address}`"
        ) from None


@contextmanager
def _mute_dask_logs() -> Iterator[None]:
    """Disable the loggers of Dask: errors are reported in one sentence instead."""
    names = [n for n in logging.root.manager.loggerDict if n.startswith(distributed.__name__)]
    loud = [logger for logger in map(logging.getLogger, names) if not logger.disabled]
    for logger in loud:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loud:
            logger.disabled = False


def _run_on_client(
    client: Client, address: str, study: Study, tasks: Mapping[int, StudyTask]
) -> Iterator[TaskResults]:
    price = client.scatter(TaskEvaluator(study), hash=False)
    pending = {
        client.submit(
            _evaluate_batch, price, {number: tasks[number] for number in batch}, pure=False
        )
        for batch in batch_tasks(tasks)
    }
    while pending:
        done = {future for future in pending if future.status != "pending"}
        pending -= done
        if client.status != "running":  # checked after `done`: whatever is still pending is lost
            raise _lost_scheduler(address)
        try:
            found = [pair for future in done for pair in _result(future)]
        except OSError:  # it was lost while it sent them
            raise _lost_scheduler(address) from None
        yield found
        time.sleep(POLL_INTERVAL_S)


def _lost_scheduler(address: str) -> TunerError:
    return TunerError(
        f"the Dask scheduler at {address} no longer answers: start one again; the same command"
        " goes on"
    )


def _evaluate_batch(evaluate: TaskEvaluator, batch: Mapping[int, StudyTask]) -> TaskResults:
    return [(number, evaluate(task)) for number, task in batch.items()]


def _result(future: Future[TaskResults]) -> TaskResults:
    if future.status == "finished":
        return future.result()
    reason = future.exception() if future.status == "error" else None
    if isinstance(reason, TunerError):
        raise reason
    raise TunerError(
        f"the Dask cluster lost a task ({reason or future.status}): do all who work for it have"
        " this version of tuner, and memory enough? The same command goes on"
    )
