"""What is shipped: links in the repository, such as txn, sinks and spark_plugins, must be folders in a package."""

from __future__ import annotations

import ast
import sys
import tarfile
import zipfile
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from epochal.cli import new_sink

ROOT = Path(__file__).parent.parent


SOURCES = (
    ".py",
    ".java",
    ".html",
    ".css",
    ".js",
)  # Java is compiled where it runs; the rest is the page of `epochal ui`


def modules_in_repository() -> set[str]:
    found = {path.relative_to(ROOT).as_posix() for path in _sources(ROOT / "epochal")}
    for folder in ("txn", "sinks", "spark_plugins"):
        found |= {"epochal/" + path.relative_to(ROOT).as_posix() for path in _sources(ROOT / folder)}
    return found | {f"epochal/cli/sqlite_sink/{path.name}" for path in _sources(ROOT / "examples" / "sqlite-sink")}


def _sources(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in SOURCES]


def modules_in_wheel(project: Path, out: Path) -> set[str]:
    (wheel,) = WheelBuilder(str(project)).build(directory=str(out), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    template = {f"epochal/cli/sqlite_sink/{name}" for name in new_sink.FILES}
    assert {"epochal/py.typed", "epochal/metrics/grafana.json", *template} <= {*names}
    return {name for name in names if name.endswith(SOURCES)}


def test_wheel_holds_every_module_of_the_linked_folders(tmp_path: Path) -> None:
    assert modules_in_wheel(ROOT, tmp_path) == modules_in_repository()


def test_wheel_built_from_the_sdist_holds_the_same(tmp_path: Path) -> None:
    (sdist,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (project,) = tmp_path.glob("epochal-*/")

    assert modules_in_wheel(project, tmp_path) == modules_in_repository()


def test_txn_imports_only_the_standard_library_and_itself() -> None:
    for path in sorted((ROOT / "txn").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path.name}:{node.lineno}: imports are absolute here"
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                known = name.split(".")[0] in sys.stdlib_module_names or (name + ".").startswith("epochal.txn.")
                assert known, f"{path.name}:{node.lineno} imports {name}"
