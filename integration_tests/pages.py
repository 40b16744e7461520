"""Pages of the docs, run as their readers would: each command in a shell, its output compared with the page's."""

from __future__ import annotations

import doctest
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """One command of a page and what it prints there. ``...`` stands for anything."""

    line: str
    output: str

    def run(self, folder: Path, environment: Mapping[str, str]) -> None:
        done = subprocess.run(
            ["bash", "-c", self.line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            start_new_session=True,  # as a shell's job: a kill takes the JVM too
        )
        if self.output == "Killed\n":  # as bash reports it
            assert done.returncode == -signal.SIGKILL, f"$ {self.line}\n{done.stdout}{done.stderr[-3000:]}"
            return
        same = doctest.OutputChecker().check_output(self.output, done.stdout, doctest.ELLIPSIS)
        assert same, f"$ {self.line}\n{done.stdout}\nbut the page has:\n{self.output}\n{done.stderr[-3000:]}"
        # The exit code of `status` says how the stream stands.
        assert done.returncode == 0 or self.line.startswith("epochal status"), done.stderr[-3000:]


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page, in its order."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield Command(line, output)


def run_page(page: Path, folder: Path, environment: Mapping[str, str]) -> int:
    """Run all commands of a page but `pip`; how many they were."""
    found = [command for command in commands(page) if not command.line.startswith("pip ")]
    for command in found:
        command.run(folder, environment)
    return len(found)
