"""Rewrites constraints.txt: the newest versions that pyproject.toml allows, with all extras.

Installs nothing: pip only resolves. Run it as `.venv/bin/python scripts/renew_constraints.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = """\
# What `make setup` installs, exactly; the pins of all extras too.
# Written by scripts/renew_constraints.py.
"""


def resolve() -> list[str]:
    """Every pin as name==version, sorted by name."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    run = subprocess.run([*pip, f"{ROOT}[dev,all]"], stdout=subprocess.PIPE, check=True)
    found = (package["metadata"] for package in json.loads(run.stdout)["install"])
    pins = {re.sub(r"[-_.]+", "-", metadata["name"]).lower(): metadata["version"] for metadata in found}
    del pins["epochal"]
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


if __name__ == "__main__":
    (ROOT / "constraints.txt").write_text(HEAD + "".join(pin + "\n" for pin in resolve()), encoding="ascii")
