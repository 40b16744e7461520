"""Runs the tests that start servers, with the servers in containers: ``make test-docker [TESTS="..."]``.

Uses the Docker engine that answers. If none does, and `dockerd` is installed and this runs as root, it starts an engine
and stops it at the end. Uses the images in EPOCHAL_CASSANDRA_IMAGE, EPOCHAL_HDFS_IMAGE, EPOCHAL_KAFKA_IMAGE and
EPOCHAL_POSTGRES_IMAGE, else the public ones, else one that `local_image.py` makes.
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

from epochal.testing.servers import cassandra_docker, hdfs_docker, kafka_docker, postgres_docker
from epochal.testing.servers.containers import Image, engine_answers
from epochal.testing.servers.routes import ROUTES
from epochal.testing.servers.supervisor_process import die_with_parent
from scripts import local_image

TESTS = (
    "integration_tests/cassandra",
    "integration_tests/hdfs",
    "integration_tests/kafka/test_servers.py",
    "integration_tests/postgres/test_servers.py",
)
IMAGES = (cassandra_docker.IMAGE, hdfs_docker.IMAGE, kafka_docker.IMAGE, postgres_docker.IMAGE)
START = 60.0  # seconds for an engine to answer
PULL = 300


def main(tests: list[str]) -> int:
    """Run the tests and return their exit code."""
    with engine():
        environment = {
            **os.environ,
            ROUTES: "docker",
            **{image.variable: available(image) for image in IMAGES},
            # The supervisor process removes the containers, also after kill -9.
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }
        chosen = tests or list(TESTS)
        command = [sys.executable, "-m", "pytest", "-m", "not local and not matrix", *chosen]
        # If this process is killed, the tests and the engine that it started are killed too.
        return subprocess.run(command, env=environment, check=False, preexec_fn=die_with_parent).returncode


def available(image: Image) -> str:
    """The name of an image that the engine has or can pull."""
    if image.name != image.public:
        return image.name
    try:
        command = ["docker", "pull", "--quiet", image.public]
        if subprocess.run(command, capture_output=True, check=False, timeout=PULL).returncode == 0:
            return image.public
    except subprocess.TimeoutExpired:
        pass
    local_image.print_progress(f"{image.public} cannot be pulled here")
    local_image.main()
    return local_image.IMAGE


@contextmanager
def engine() -> Iterator[None]:
    """The running engine, or one that is started for the time of the tests."""
    if engine_answers():
        yield
        return
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        raise SystemExit("no Docker engine answers. Start one, or install docker.io and run this as root")
    # Images stay for the next run; everything else is removed.
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
            local_image.print_progress("started a Docker engine for these tests")
            for left in ("container", "network"):  # left by a run that was killed together with its engine
                subprocess.run(["docker", left, "prune", "--force"], stdout=subprocess.DEVNULL, check=True)
            yield
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
