"""Makes an image of all servers for a Docker engine that cannot pull them: Debian, Java and the packages of the tests.

    python -m scripts.local_image          # makes it once, in a minute; prints its name
    export EPOCHAL_CASSANDRA_IMAGE=that-name EPOCHAL_HDFS_IMAGE=that-name EPOCHAL_SERVERS=docker
    export EPOCHAL_KAFKA_IMAGE=that-name EPOCHAL_POSTGRES_IMAGE=that-name

Needs root, debootstrap and a Debian whose apt works: the image is made from the mirror that apt itself uses.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePath

from epochal.testing.servers import cassandra_java, hdfs_java, hdfs_site, kafka_docker, kafka_java, postgres_programs
from epochal.testing.servers.artifacts import CASSANDRA, HDFS, KAFKA, POSTGRES, Artifact, jars
from epochal.testing.servers.java import Java, find_java

IMAGE = (
    f"epochal-servers:cassandra-{CASSANDRA.version}-hdfs-{HDFS.version}"
    f"-kafka-{KAFKA.version}-postgres-{POSTGRES.version}"
)
PACKAGE = "openjdk-17-jre-headless"
JAVA = Path("/usr/bin/java")  # these paths are inside the image
CASSANDRA_HOME = Path("/var/lib/cassandra")
CASSANDRA_START = Path("/usr/local/bin/cassandra-node")
HDFS_START = Path("/usr/local/bin/hdfs")


def main() -> None:
    """Make the image unless the engine has it."""
    if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
        make()
    print(IMAGE)


def make() -> None:
    """Make the image and import it into the engine."""
    if shutil.which("debootstrap") is None:
        raise SystemExit("debootstrap is missing: apt-get install debootstrap, or name an image that can be pulled")
    with tempfile.TemporaryDirectory(prefix="epochal-image-") as folder:
        print_progress(f"making {IMAGE}: Debian with {PACKAGE}")
        options = ["--variant=minbase", f"--include={PACKAGE}"]
        quietly(["debootstrap", *options, suite(), folder, mirror()])
        print_progress("  the servers' jars")
        add_cassandra(Path(folder))
        add_hdfs(Path(folder))
        add_kafka(Path(folder))
        add_postgres(Path(folder))
        print_progress("  into the engine")
        tar = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
        quietly(["docker", "import", "--change", f'CMD ["{CASSANDRA_START}"]', "-", IMAGE], tar)
        if tar.wait():
            raise SystemExit("tar failed")


def add_cassandra(root: Path) -> None:
    """Add a node that runs in the foreground. JVM_EXTRA_OPTS comes last and overrides, as in the official image."""
    classes = add_jars(root, CASSANDRA)
    home = below(root, CASSANDRA_HOME)
    (home / "tmp").mkdir(parents=True)
    (home / "logback.xml").write_text(cassandra_java.LOGBACK, encoding="ascii")
    command = cassandra_java.command(Java(JAVA, 17), classes, CASSANDRA_HOME, nodes=3)
    cut = command.index("-cp")
    first, last = shlex.join(command[:cut]), shlex.join(command[cut:])
    add_script(root, CASSANDRA_START, f'exec {first} -Xmx"${{MAX_HEAP_SIZE:-512m}}" $JVM_EXTRA_OPTS {last}')


def add_hdfs(root: Path) -> None:
    """Add as much of Hadoop's command `hdfs` as starts a NameNode or a DataNode."""
    classes = add_jars(root, HDFS)[0].parent
    hdfs_site.write_pages(below(root, classes))
    mains = "".join(f"{name}) main={main} ;;\n" for name, main in hdfs_java.MAINS.items())
    choose = f'case "$1" in\n{mains}*) echo "hdfs: not here: $1" >&2; exit 2 ;;\nesac\nshift\n'
    classpath = f'"$HADOOP_CONF_DIR:{classes}:{classes}/*"'
    add_script(root, HDFS_START, f'{choose}exec {JAVA} $HADOOP_OPTS -cp {classpath} "$main" "$@"')


def add_kafka(root: Path) -> None:
    """Add Kafka's scripts that format a folder and start a broker, as far as the tests need them."""
    classes = add_jars(root, KAFKA)[0].parent
    below(root, kafka_docker.BIN).mkdir(parents=True)
    for name, main in (("kafka-storage.sh", kafka_java.STORAGE), ("kafka-server-start.sh", kafka_java.BROKER)):
        run = f'exec {JAVA} $KAFKA_HEAP_OPTS $KAFKA_OPTS -cp "{classes}/*" {main} "$@"'
        add_script(root, kafka_docker.BIN / name, run)


def add_postgres(root: Path) -> None:
    """Add PostgreSQL's programs, and the user who runs them."""
    home = Path("/usr/lib/postgresql", POSTGRES.version.partition(".")[0])
    shutil.copytree(postgres_programs.fetched(), below(root, home), symlinks=True)
    with below(root, Path("/etc/passwd")).open("a", encoding="ascii") as users:
        users.write("postgres:x:999:999::/tmp:/bin/sh\n")
    with below(root, Path("/etc/group")).open("a", encoding="ascii") as groups:
        groups.write("postgres:x:999:\n")


def add_jars(root: Path, artifact: Artifact) -> list[Path]:
    """Add a server's jars; returns their paths inside the image."""
    folder = Path("/opt", artifact.name)
    below(root, folder).mkdir(parents=True)
    return [folder / Path(shutil.copy(jar, below(root, folder))).name for jar in jars(artifact, find_java())]


def add_script(root: Path, path: PurePath, text: str) -> None:
    """Add an executable script."""
    script = below(root, path)
    script.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    script.chmod(0o755)


def below(root: Path, inside: PurePath) -> Path:
    """The path outside the image of something inside it."""
    return root / inside.relative_to("/")


def suite() -> str:
    """The code name of this Debian."""
    for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2]
    raise SystemExit("/etc/os-release has no VERSION_CODENAME: this is not a Debian")


def mirror() -> str:
    """The mirror that apt uses."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {suite()}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    if not found:
        raise SystemExit("apt knows no packages: run apt-get update")
    return found[0]


def quietly(command: list[str], source: subprocess.Popen[bytes] | None = None) -> None:
    """Run a command; print its output only if it fails."""
    stdin = source.stdout if source else subprocess.DEVNULL
    ran = subprocess.run(command, stdin=stdin, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode:
        raise SystemExit(f"{command[0]} failed:\n{(ran.stdout + ran.stderr)[-2000:]}")


def print_progress(text: str) -> None:
    """Print progress to stderr; stdout has the result."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
