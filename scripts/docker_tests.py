"""The tests that start servers, with all of them in containers: ``make test-docker [TESTS="..."]``.

Takes the Docker engine that answers, or starts one of its own where `dockerd` is installed and this is root, and
stops that at the end. Takes the images in EPOCHAL_CASSANDRA_IMAGE and EPOCHAL_HDFS_IMAGE, the public ones where they
can be pulled, and else one that `local_image.py` makes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from epochal.testing.servers import cassandra_docker, hdfs_docker
from epochal.testing.servers.containers import Image, engine_answers
from epochal.testing.servers.routes import ROUTES
from epochal.testing.servers.supervisor_process import die_with_parent
from scripts import local_image

TESTS = ("integration_tests/cassandra", "integration_tests/hdfs")
IMAGES = (cassandra_docker.IMAGE, hdfs_docker.IMAGE)
START = 60.0  # seconds for an engine to answer
PULL = 300


def main(tests: list[str]) -> int:
    """Run the tests; their exit code."""
    with engine():
        environment = {
            **os.environ,
            ROUTES: "docker",
            **{image.variable: found(image) for image in IMAGES},
            # Containers are removed by the process that keeps them, also after kill -9.
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }
        chosen = tests or list(TESTS)
        command = [sys.executable, "-m", "pytest", "-m", "not local and not matrix", *chosen]
        # If this process is killed, so are they, and the engine that it has started.
        return subprocess.run(command, env=environment, check=False, preexec_fn=die_with_parent).returncode


def found(image: Image) -> str:
    """The name of one that the engine has."""
    if image.name != image.public:
        return image.name
    try:
        command = ["docker", "pull", "--quiet", image.public]
        if subprocess.run(command, capture_output=True, check=False, timeout=PULL).returncode == 0:
            return image.public
    except subprocess.TimeoutExpired:
        pass
    local_image.say(f"{image.public} cannot be pulled here")
    local_image.main()
    return local_image.IMAGE


@contextmanager
def engine() -> Iterator[None]:
    """One that answers, or one of our own for as long as this runs."""
    if engine_answers():
        yield
        return
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        raise SystemExit("no Docker engine answers; start one, or install one and be root: apt-get install docker.io")
    # Images are kept from run to run; the rest goes.
    images = Path(os.environ.get("EPOCHAL_CACHE", "~/.cache/epochal")).expanduser() / "docker"
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="epochal-docker-") as folder:
        socket = f"unix://{folder}/docker.sock"
        paths = [f"--data-root={images}", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        with Path(folder, "log").open("wb") as log:
            daemon = subprocess.Popen(
                ["dockerd", "-H", socket, *paths],
                stdout=log,
                stderr=log,
                preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509
            )
        os.environ["DOCKER_HOST"] = socket
        try:
            end = time.monotonic() + START
            while not engine_answers():
                if daemon.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"dockerd does not answer:\n{Path(folder, 'log').read_text()[-2000:]}")
                time.sleep(0.2)
            local_image.say("started a Docker engine for these tests")
            for left in ("container", "network"):  # by a run that was killed, with its engine
                subprocess.run(["docker", left, "prune", "--force"], stdout=subprocess.DEVNULL, check=True)
            yield
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
