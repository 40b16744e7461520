"""A stream into one file sink, everything of it on HDFS, whose driver stops at a point of the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from integration_tests.hdfs.remote import Remote
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.children import Child, Children, Ended
from integration_tests.spark.driver import Ending

FILES = 4
ENDLESS = "--endless"
HELD, RESUMED, NOT_STAGED = " held: ", " resumed: ", "epoch not staged"
# An epoch has three files: the first is renamed alone, then the others. Here after the first of epoch 1.
MID_COMMIT = "before-rename@4"
MID_STAGE = "before-write@3"


class Stream:
    """Drivers of one checkpoint, one after the other.

    They hear no events of Spark's, unless they are endless, so that all is done in the batch's thread: while one stands
    at a point, nothing else of it is under way that a fault could hit instead.
    """

    def __init__(self, drivers: Children, remote: Remote) -> None:
        self.remote, self.path, self.target = remote, remote.path, f"{remote.path}/first"
        self.user: str | None = None
        self._drivers = drivers
        self._driver: Child | None = None
        self._gate, self._log = remote.world.root / "gate", remote.world.root / "log"

    def run_as(self, user: str) -> None:
        """Let the drivers be of a user who may do no more than others; the folder is theirs."""
        self.user = user
        self.remote.client.makedirs(self.path)
        self.give(user, self.path)

    def give(self, user: str, path: str) -> None:
        self.remote.client.set_owner(path, owner=user)

    def stop_at(self, point: str) -> None:
        """Start a driver and return when it stands at a point; `go_on` lets it go."""
        next(self.stops([point]))

    def stops(self, points: Sequence[str], *arguments: str, files: int = FILES) -> Iterator[str]:
        """Start a driver and give each of the points when it stands there; it goes no further before it is let go."""
        gates = [self.remote.world.root / f"gate-{number}" for number in range(len(points))]
        named = [point.partition("@") for point in points]
        pauses = [f"{name}=pause:{gate}@{hit or 1}" for (name, _, hit), gate in zip(named, gates, strict=True)]
        self._driver = self.start(*arguments, points=";".join(pauses), files=files)
        for point, self._gate in zip(points, gates, strict=True):
            self._driver.wait_for(self._gate)
            yield point

    def let_go(self) -> None:
        self._gate.unlink()

    def go_on(self, until: str) -> None:
        """Let it go, and return when its log says this, once more if it has said so before."""
        before = self.times(until)
        self.let_go()
        self.wait_for(until, times=before + 1)

    def wait_for(self, what: str, *, times: int = 1) -> None:
        """Return when the log has said this so often."""
        assert self._driver is not None
        self._driver.wait_until(lambda: self.times(what) >= times, f"the log to say: {what}")

    def times(self, what: str) -> int:
        """How often the log says something."""
        return self.log().count(what)

    def log(self) -> str:
        return self._log.read_text()

    def told(self, what: str, *, after: int = 0) -> str:
        """The first line of the log that says this, after so many characters."""
        return next(line for line in self.log()[after:].splitlines() if what in line)

    def wait(self) -> Ended:
        assert self._driver is not None
        return self._driver.wait()

    def interrupt(self) -> Ended:
        """What ends a driver that is endless."""
        assert self._driver is not None
        self._driver.interrupt()
        return self._driver.wait()

    def start(self, *arguments: str, points: str = "", files: int = FILES) -> Child:
        """A driver; what it says goes to the log too."""
        self.remote.world.feed(files)
        given = ["--sinks", "1", "--log", str(self._log), *self.remote.arguments, *arguments]
        if ENDLESS not in arguments:
            given.append("--deaf")
        with pytest.MonkeyPatch.context() as environment:
            if self.user:
                environment.setenv("HADOOP_USER_NAME", self.user)
            return self._drivers.start(self.remote.world.root, *given, points=points)

    def check_resumed(self) -> None:
        """It was held, goes on by itself, and every row is there once."""
        ended = self.wait()

        assert ended.ending is Ending.DONE, ended.output
        assert RESUMED in ended.output
        check_at_the_end(self.remote.look(), files=FILES)
