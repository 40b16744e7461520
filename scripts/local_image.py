"""Make an image of Cassandra for a Docker engine that cannot pull one: Debian, Java and the jars that tests use.

    python -m scripts.local_image          # prints the image's name; made once, a minute
    EPOCHAL_CASSANDRA_IMAGE=epochal-cassandra:5.0.9 EPOCHAL_SERVERS=docker pytest integration_tests/cassandra

Needs root, debootstrap and a Debian whose apt works: the image is made from the mirror that apt itself uses.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from epochal.testing.servers import cassandra_java
from epochal.testing.servers.artifacts import CASSANDRA, jars
from epochal.testing.servers.java import Java, find_java

IMAGE = f"epochal-cassandra:{CASSANDRA.version}"
JAVA = "openjdk-17-jre-headless"
HOME = Path("/var/lib/cassandra")  # inside
JARS = Path("/opt/cassandra")
START = "/usr/local/bin/cassandra-node"


def main() -> None:
    """Make it unless the engine has it."""
    if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
        make()
    print(IMAGE)


def make() -> None:
    """From nothing to an image."""
    if shutil.which("debootstrap") is None:
        raise SystemExit("debootstrap is missing: apt-get install debootstrap, or name an image that can be pulled")
    with tempfile.TemporaryDirectory(prefix="epochal-image-") as folder:
        root = Path(folder)
        say(f"making {IMAGE}: Debian with {JAVA}")
        options = ["--variant=minbase", f"--include={JAVA}"]
        quietly(["debootstrap", *options, suite(), folder, mirror()])
        say("  Cassandra's jars")
        found = jars(CASSANDRA, find_java())
        inside = root / JARS.relative_to("/")
        inside.mkdir(parents=True)
        for jar in found:
            shutil.copy(jar, inside)
        home = root / HOME.relative_to("/")
        (home / "tmp").mkdir(parents=True)
        (home / "logback.xml").write_text(cassandra_java.LOGBACK, encoding="ascii")
        start = root / START.removeprefix("/")
        start.write_text(script([JARS / jar.name for jar in found]), encoding="ascii")
        start.chmod(0o755)
        say("  into the engine")
        tar = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
        quietly(["docker", "import", "--change", f'CMD ["{START}"]', "-", IMAGE], tar)
        if tar.wait():
            raise SystemExit("tar failed")


def script(classes: list[Path]) -> str:
    """What runs a node. Options in JVM_EXTRA_OPTS come last and so win, as in the official image."""
    command = cassandra_java.command(Java(Path("/usr/bin/java"), 17), classes, HOME, nodes=3)
    cut = command.index("-cp")
    first, last = shlex.join(command[:cut]), shlex.join(command[cut:])
    return f'#!/bin/sh\nexec {first} -Xmx"${{MAX_HEAP_SIZE:-512m}}" $JVM_EXTRA_OPTS {last}\n'


def suite() -> str:
    """The name of this Debian."""
    for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2]
    raise SystemExit("/etc/os-release does not tell which Debian this is")


def mirror() -> str:
    """Where apt has its packages from."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {suite()}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    if not found:
        raise SystemExit("apt knows no packages: run apt-get update")
    return found[0]


def quietly(command: list[str], source: subprocess.Popen[bytes] | None = None) -> None:
    """Run it; what it said is told only if it failed."""
    stdin = source.stdout if source else subprocess.DEVNULL
    ran = subprocess.run(command, stdin=stdin, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode:
        raise SystemExit(f"{command[0]} failed:\n{(ran.stdout + ran.stderr)[-2000:]}")


def say(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
