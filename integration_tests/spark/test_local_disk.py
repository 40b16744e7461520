"""epochal's file system for local disks does what Hadoop's own does, but for forked processes and lost races."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from integration_tests.spark.children import Children
from integration_tests.spark.local_disk import Disk, disks

pytestmark = pytest.mark.spark

FACES = ("FileSystem", "FileContext")
RACES = 200
Operation = Callable[[Disk, Path], object]


def outcome(operation: Operation, disk: Disk, folder: Path) -> list[object]:
    """What an operation answers, or the kind of its error; and what it leaves in the folder."""
    folder.mkdir()
    (folder / "file").write_text("file")
    (folder / "other").write_text("other")
    (folder / "full").mkdir()
    (folder / "full" / "inner").write_text("inner")
    (folder / "empty").mkdir()
    (folder / "shared").mkdir()
    (folder / "shared").chmod(0o2775)  # files below it get its group
    (folder / "link").symlink_to("file")
    (folder / "nowhere").symlink_to("missing")
    (folder / "to-full").symlink_to("full")
    try:
        answer = operation(disk, folder)
    except Py4JJavaError as fault:
        answer = fault.java_exception.getClass().getName()
    except PySparkException as fault:  # which Spark knows as one of its own
        answer = type(fault).__name__
    left = []
    for path in sorted(folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        content = path.read_bytes() if path.is_file() else None
        left.append((str(path.relative_to(folder)), oct(mode), path.is_symlink(), content))
    return [answer, *left]


def rename(source: str, target: str, *, overwrite: bool = False) -> Operation:
    return lambda disk, folder: disk.rename(folder / source, folder / target, overwrite=overwrite)


def written_then(then: Operation, name: str = "new") -> Operation:
    """With a file that has checksums."""

    def run(disk: Disk, folder: Path) -> object:
        disk.write(folder / name, b"new")
        return then(disk, folder)

    return run


RENAMES = {
    f"{source} to {target}{' over it' if overwrite else ''}": rename(source, target, overwrite=overwrite)
    for source in ("file", "full", "missing", "link", "nowhere")
    for target in ("free", "other", "empty", "full", "none/free", "file/free", "full/free", "file")
    for overwrite in (False, True)
}
OPERATIONS: dict[str, Operation] = {
    **{f"rename {name}": operation for name, operation in RENAMES.items()},
    "rename with checksums": written_then(rename("new", "free")),
    "rename with checksums over a file": written_then(rename("new", "other", overwrite=True)),
    "rename with checksums onto a file": written_then(rename("new", "other")),
    "make": lambda disk, folder: disk.write(folder / "new", b"x"),
    "make in a new folder": lambda disk, folder: disk.write(folder / "a" / "b" / "new", b"x"),
    "make where a file is": lambda disk, folder: disk.write(folder / "file", b"x"),
    "make below a file": lambda disk, folder: disk.write(folder / "file" / "new", b"x"),
    "make with permissions": lambda disk, folder: disk.write(folder / "new", b"x", mode=0o640),
    "make a folder": lambda disk, folder: disk.make_folder(folder / "a" / "b", 0o755),
    "make a folder with a sticky bit": lambda disk, folder: disk.make_folder(folder / "a", 0o1777),
    "make a folder where a file is": lambda disk, folder: disk.make_folder(folder / "file", 0o755),
    "set permissions": lambda disk, folder: disk.set_permission(folder / "file", 0o600),
    "set permissions of a folder": lambda disk, folder: disk.set_permission(folder / "full", 0o1770),
    "set permissions by a link": lambda disk, folder: disk.set_permission(folder / "link", 0o600),
    "set permissions of a folder of a group": lambda disk, folder: disk.set_permission(folder / "shared", 0o700),
    "make a folder below one of a group": lambda disk, folder: disk.make_folder(folder / "shared" / "a" / "b", 0o755),
    "make a file below one of a group": lambda disk, folder: disk.write(folder / "shared" / "new", b"x"),
    "set times": lambda disk, folder: disk.set_times(folder / "file", 1_000_000_000_000, 1_100_000_000_000),
    "append": written_then(lambda disk, folder: disk.append(folder / "new", b"er")),
    "list": lambda disk, folder: disk.entries(folder),
    "list a file": lambda disk, folder: disk.entries(folder / "file"),
    "list a link to a folder": lambda disk, folder: disk.entries(folder / "to-full"),
    "list what is missing": lambda disk, folder: disk.entries(folder / "missing"),
    "delete": lambda disk, folder: disk.delete(folder / "file", recursive=False),
    "delete a full folder": lambda disk, folder: disk.delete(folder / "full", recursive=False),
    "delete all of a full folder": lambda disk, folder: disk.delete(folder / "full", recursive=True),
    "delete a link": lambda disk, folder: disk.delete(folder / "link", recursive=False),
    "delete what is missing": lambda disk, folder: disk.delete(folder / "missing", recursive=False),
    **{
        f"read {name}": lambda disk, folder, name=name: disk.read(folder / name)  # type: ignore[misc]
        for name in ("file", "link", "full", "missing", "nowhere", "file/inner")
    },
    **{
        f"look at {name}": lambda disk, folder, name=name: disk.status(folder / name)  # type: ignore[misc]
        for name in ("file", "link", "full", "missing", "nowhere", "file/inner", "to-full")
    },
    **{
        f"a file named {name!r}": lambda disk, folder, name=name: (  # type: ignore[misc]
            disk.write(folder / name, b"x"),
            disk.rename(folder / name, folder / f"{name}2"),
            disk.status(folder / f"{name}2"),
            disk.read(folder / f"{name}2"),
        )
        for name in ("a b", "größe", "日本", "a%20b", "a#b", "a+b", "it's", 'say "x"', "a\\b", ".hidden", "x" * 200)
    },
}


# Where Hadoop's own does not see that a path with a scheme is a link; what is right is tested below.
LINKS = {
    "FileSystem": {"look at link", "look at to-full"},
    "FileContext": {
        *("look at link", "look at to-full", "rename link to file over it"),
        *(name for name in OPERATIONS if name.startswith("rename nowhere") and "none/" not in name),
    },
}


@pytest.mark.parametrize("umask", ["022", "077"])
@pytest.mark.parametrize("face", FACES)
def test_every_operation_does_what_hadoops_own_does(spark: SparkSession, tmp_path: Path, face: str, umask: str) -> None:
    ours, hadoops = disks(spark, face, umask)
    different = {}
    for number, (name, operation) in enumerate(OPERATIONS.items()):
        by_us = outcome(operation, ours, tmp_path / "ours")
        by_hadoop = outcome(operation, hadoops, tmp_path / "hadoops")
        if by_us != by_hadoop:
            different[name] = (by_us, by_hadoop)
        (tmp_path / "ours").rename(tmp_path / f"ours-{number}")
        (tmp_path / "hadoops").rename(tmp_path / f"hadoops-{number}")

    assert {name: facts for name, facts in different.items() if name not in LINKS[face]} == {}
    assert set(different) == LINKS[face]


def test_a_link_is_seen_as_one_and_moved_as_one(spark: SparkSession, tmp_path: Path) -> None:
    ours, _ = disks(spark, "FileContext")
    (tmp_path / "file").write_text("file")
    (tmp_path / "link").symlink_to("file")
    ours.rename(tmp_path / "link", tmp_path / "moved")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        ours.rename(tmp_path / "moved", tmp_path / "file", overwrite=True)

    assert os.readlink(tmp_path / "moved") == "file"
    assert (tmp_path / "file").read_text() == "file"


def test_checksums_that_were_left_behind_do_not_keep_a_file_from_its_name(spark: SparkSession, tmp_path: Path) -> None:
    ours, hadoops = disks(spark, "FileContext")
    for disk, name in ((ours, "ours"), (hadoops, "hadoops")):
        disk.write(tmp_path / name, b"before")
        (tmp_path / name).unlink()  # by hand, as people do it: its checksums stay
        disk.write(tmp_path / f"{name}.tmp", b"after")
    ours.rename(tmp_path / "ours.tmp", tmp_path / "ours")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        hadoops.rename(tmp_path / "hadoops.tmp", tmp_path / "hadoops")

    assert ours.read(tmp_path / "ours") == b"after"
    assert (tmp_path / ".ours.crc").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_rename_to_another_device_copies(spark: SparkSession, tmp_path: Path, overwrite: bool) -> None:
    ours, _ = disks(spark, "FileContext")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        source, target = Path(memory, "new"), tmp_path / "target"
        assert Path(memory).stat().st_dev != tmp_path.stat().st_dev, "is there no second device?"
        ours.write(source, b"new")
        if overwrite:
            ours.write(target, b"old")
        ours.rename(source, target, overwrite=overwrite)

        assert ours.read(target) == b"new"
        assert os.listdir(tmp_path) == ["target"]  # a copy: nobody knows whether the checksums are its own
        assert os.listdir(memory) == []


def test_writers_that_overwrite_each_other_leave_a_file_that_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    by_context, _ = disks(spark, "FileContext")
    verifying, _ = disks(spark, "FileSystem")

    def write(name: str) -> None:
        for number in range(20):
            by_context.write(tmp_path / f"{name}{number}", name.encode() * (600 + number))
            by_context.rename(tmp_path / f"{name}{number}", tmp_path / "target", overwrite=True)

    with ThreadPoolExecutor(2) as writers:
        list(writers.map(write, ("a", "b")))

    assert set(verifying.read(tmp_path / "target")) in ({ord("a")}, {ord("b")})


def test_a_damaged_file_is_still_found_by_its_checksums(spark: SparkSession, tmp_path: Path) -> None:
    ours, _ = disks(spark, "FileSystem")
    ours.write(tmp_path / "file", b"x" * 1000)
    (tmp_path / "file").write_bytes(b"x" * 999 + b"y")

    with pytest.raises(Py4JJavaError, match="ChecksumException"):
        ours.read(tmp_path / "file")


NO_LINKS = """
package epochal;

public class NoLinks extends LocalDisk {
    protected void link(java.nio.file.Path from, java.nio.file.Path to) {
        throw new UnsupportedOperationException("no links here");
    }
}
"""


def test_without_hard_links_a_rename_is_hadoops_own(spark: SparkSession, tmp_path: Path) -> None:
    ours, _ = disks(spark, "FileSystem")
    compiler = ours.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(NO_LINKS)
    disk = compiler.getClassLoader().loadClass("epochal.NoLinks").newInstance()
    disk.initialize(ours.jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())
    for name in ("new", "other"):
        (tmp_path / name).write_text(name)
    disk.move(ours.path(tmp_path / "new"), ours.path(tmp_path / "free"), False)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        disk.move(ours.path(tmp_path / "other"), ours.path(tmp_path / "free"), False)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"free": "new", "other": "other"}


def raced(drivers: Children, home: Path, switch: str) -> tuple[set[int], set[int]]:
    """The epochs whose offsets each of two drivers has written, of RACES."""
    home.mkdir()
    names = ("one", "two")
    children = [
        drivers.run_module("integration_tests.spark.racing", str(home), me, other, str(RACES), switch)
        for me, other in (names, reversed(names))
    ]
    for child in children:
        ended = child.wait()
        assert ended.code == 0, ended.output
    one, two = (set(json.loads((home / f"{name}.json").read_text())) for name in names)
    return one, two


def test_of_two_drivers_that_write_the_same_offsets_exactly_one_is_told_so(drivers: Children, tmp_path: Path) -> None:
    one, two = raced(drivers, tmp_path / "ours", "on")

    assert one & two == set()
    assert one | two == set(range(RACES))


@pytest.mark.matrix
def test_with_hadoops_own_two_drivers_write_the_same_offsets(drivers: Children, tmp_path: Path) -> None:
    for number in range(10):  # one race in two hundred, as it was measured
        one, two = raced(drivers, tmp_path / f"hadoops-{number}", "off")
        if one & two:
            return
    raise AssertionError("nobody has lost a race: is it one?")


STARTED_LATE = """
import logging, sys
logging.basicConfig(level=logging.WARNING)
from pyspark.sql import SparkSession
import epochal
from epochal import EpochWriter, RollingFileSink

home = sys.argv[1]
SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1").getOrCreate().stop()
spark = epochal.session("late", master="local[1]", conf={"spark.jars": ""})
rows = spark.readStream.schema("id long").json(f"{home}/in")
target = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{home}/checkpoint")
EpochWriter(RollingFileSink(f"{home}/out")).start(target).awaitTermination()
print("rows", spark.read.parquet(f"{home}/out").count())
"""


def test_a_session_on_a_jvm_that_runs_without_the_jar_works_without_it_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\n')
    run = subprocess.run(
        [sys.executable, "-c", STARTED_LATE, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr
    assert "rows 1" in run.stdout
    assert "the JVM is already running without epochal's jar" in run.stderr


SWITCHED_OFF_LATER = """
import epochal

for switch in ("true", "false"):
    spark = epochal.session("x", master="local[1]", conf={"spark.jars": "", "spark.epochal.localDisk": switch})
    uri, conf = spark._jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration()
    print(spark._jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, conf).getDefaultFileSystem().getClass())
    spark.stop()
"""


def test_a_later_session_of_the_same_jvm_may_turn_it_off() -> None:
    run = subprocess.run([sys.executable, "-c", SWITCHED_OFF_LATER], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:2] == ["class epochal.LocalDiskFs", "class org.apache.hadoop.fs.local.LocalFs"]
