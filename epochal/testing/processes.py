"""Runs calls concurrently, in threads or in forked processes."""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

Answer = TypeVar("Answer")


def in_threads(calls: Sequence[Callable[[], Answer]]) -> list[Answer | Exception]:
    """What each call returned or raised; all of them start together, each in a thread."""
    answers: list[Answer | Exception] = [RuntimeError("the call did not end")] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(number: int) -> None:
        barrier.wait()
        answers[number] = _answer(calls[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def in_processes(calls: Sequence[Callable[[], Answer]]) -> list[Answer | Exception]:
    """What each call returned or raised; all of them start together, each in a forked process.

    The calls must not wait for other threads of this process: a forked child does not have them.
    """
    start_read, start_write = os.pipe()
    children = [_fork(call, start_read, start_write) for call in calls]
    os.close(start_read)
    os.close(start_write)  # the last writer is gone: every child reads the end of the pipe and runs
    answers: list[Answer | Exception] = []
    for child, pipe in children:
        with os.fdopen(pipe, "rb") as stream:
            data = stream.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answers.append(pickle.loads(data) if data else RuntimeError(f"the process ended with {status}"))
    return answers


def fork() -> int:
    """`os.fork` without Python's warning about other threads, such as those of a Spark session."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _fork(call: Callable[[], Answer], start_read: int, start_write: int) -> tuple[int, int]:
    answer_read, answer_write = os.pipe()
    child = fork()
    if child:
        os.close(answer_write)
        return child, answer_read
    try:
        os.close(start_write)
        os.read(start_read, 1)
        with os.fdopen(answer_write, "wb") as stream:
            stream.write(_pickled(_answer(call)))
    finally:
        os._exit(0)


def _answer(call: Callable[[], Answer]) -> Answer | Exception:
    try:
        return call()
    except Exception as fault:  # noqa: BLE001  # the caller checks it
        return fault


def _pickled(answer: object) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as fault:  # noqa: BLE001  # pickle raises many kinds of errors
        return pickle.dumps(RuntimeError(f"{answer!r} cannot be pickled: {fault}"))
