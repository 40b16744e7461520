"""File operations by either of the two interfaces that Hadoop has, with its own local file system or with epochal's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

OURS = {
    "fs.file.impl": "epochal.LocalDiskFileSystem",
    "fs.AbstractFileSystem.file.impl": "epochal.LocalDiskFs",
}
HADOOPS = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
}


class Disk:
    """A file system. Whatever goes wrong is Java's exception."""

    def __init__(self, spark: SparkSession, settings: dict[str, str], umask: str = "022") -> None:
        jvm: Any = spark._jvm
        self.jvm = jvm
        self.hadoop = jvm.org.apache.hadoop.fs
        self.gateway: Any = spark.sparkContext._gateway
        conf = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        more = {"fs.file.impl.disable.cache": "true", "fs.permissions.umask-mode": umask}
        for key, value in {**settings, **more}.items():
            conf.set(key, value)
        self.fs = self.open(jvm.java.net.URI("file:///"), conf)

    def open(self, uri: Any, conf: Any) -> Any:
        return self.hadoop.FileSystem.get(uri, conf)

    def path(self, path: Path) -> Any:
        # By parts: a Hadoop path is not parsed then, and may hold any character.
        return self.hadoop.Path("file", None, str(path))

    def permission(self, mode: int) -> Any:
        return self.hadoop.permission.FsPermission(f"{mode:o}")

    def write(self, path: Path, data: bytes, mode: int | None = None) -> None:
        if mode is None:
            out = self.fs.create(self.path(path), False)
        else:
            out = self.fs.createFile(self.path(path)).permission(self.permission(mode)).build()
        out.write(bytearray(data))
        out.close()

    def append(self, path: Path, data: bytes) -> None:
        out = self.fs.append(self.path(path))
        out.write(bytearray(data))
        out.close()

    def read(self, path: Path) -> bytes:
        data = self.fs.open(self.path(path))
        try:
            return bytes(data.readAllBytes())
        finally:
            data.close()

    def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> object:  # as it is
        return self.fs.rename(self.path(source), self.path(target))

    def make_folder(self, path: Path, mode: int) -> object:
        return self.fs.mkdirs(self.path(path), self.permission(mode))

    def set_permission(self, path: Path, mode: int) -> None:
        self.fs.setPermission(self.path(path), self.permission(mode))

    def set_times(self, path: Path, modified: int, read: int) -> object:
        self.fs.setTimes(self.path(path), modified, read)
        status = self.fs.getFileStatus(self.path(path))
        return status.getModificationTime(), status.getAccessTime()

    def delete(self, path: Path, *, recursive: bool) -> object:
        return self.fs.delete(self.path(path), recursive)

    def entries(self, path: Path) -> object:
        return sorted(self._facts(status, path) for status in self.statuses(path))

    def statuses(self, path: Path) -> list[Any]:
        return list(self.fs.listStatus(self.path(path)))

    def status(self, path: Path) -> object:
        """What is known of a file, and of a link itself."""
        link = self.fs.getFileLinkStatus(self.path(path))
        answer = [link.isSymlink(), Path(str(link.getSymlink().toUri().getPath())).name if link.isSymlink() else None]
        return [answer, self._facts(self.fs.getFileStatus(self.path(path)), path)]

    def _facts(self, status: Any, path: Path) -> tuple[object, ...]:
        place = Path(str(status.getPath().toUri().getPath()))
        return (
            str(place.relative_to(path)) if place != path else ".",
            status.getPath().toUri().getScheme(),
            status.getLen(),
            status.isDirectory(),
            status.getReplication(),
            status.getBlockSize(),
            str(status.getPermission().toString()),
            status.getOwner(),
            status.getGroup(),
            abs(status.getModificationTime() - place.stat().st_mtime_ns // 1_000_000) <= 1,
        )


class ContextDisk(Disk):
    """By the newer interface: what Spark's checkpoints use."""

    def open(self, uri: Any, conf: Any) -> Any:
        return self.hadoop.FileContext.getFileContext(uri, conf)

    def write(self, path: Path, data: bytes, mode: int | None = None) -> None:
        flags = self.jvm.java.util.EnumSet.of(self.hadoop.CreateFlag.CREATE)
        options = [self.hadoop.Options.CreateOpts.createParent()]
        if mode is not None:
            options.append(self.hadoop.Options.CreateOpts.perms(self.permission(mode)))
        array = self.gateway.new_array(self.hadoop.Options.CreateOpts, len(options))
        for place, option in enumerate(options):
            array[place] = option
        out = self.fs.create(self.path(path), flags, array)
        out.write(bytearray(data))
        out.close()

    def append(self, path: Path, data: bytes) -> None:
        flags = self.jvm.java.util.EnumSet.of(self.hadoop.CreateFlag.APPEND)
        out = self.fs.create(self.path(path), flags, self.gateway.new_array(self.hadoop.Options.CreateOpts, 0))
        out.write(bytearray(data))
        out.close()

    def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> object:
        kinds = self.hadoop.Options.Rename
        options = self.gateway.new_array(kinds, 1)
        options[0] = kinds.OVERWRITE if overwrite else kinds.NONE
        self.fs.rename(self.path(source), self.path(target), options)
        return None

    def make_folder(self, path: Path, mode: int) -> object:
        self.fs.mkdir(self.path(path), self.permission(mode), True)
        return None

    def statuses(self, path: Path) -> list[Any]:
        return list(self.fs.util().listStatus(self.path(path)))


def disks(spark: SparkSession, face: str, umask: str = "022") -> tuple[Disk, Disk]:
    """Epochal's and Hadoop's own, by one of the two interfaces."""
    kind = ContextDisk if face == "FileContext" else Disk
    return kind(spark, OURS, umask), kind(spark, HADOOPS, umask)
