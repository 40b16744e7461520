"""Removes the containers and networks with a label. The supervisor runs this file as a script.

python container_removal.py LABEL
"""

from __future__ import annotations

import contextlib
import sys


def main(label: str) -> None:
    """Remove them, whatever state they are in."""
    import docker
    from docker.errors import APIError

    client = docker.from_env(timeout=60)
    for container in client.containers.list(all=True, filters={"label": label}):
        with contextlib.suppress(APIError):  # ryuk may be removing it too
            container.remove(force=True, v=True)
    for network in client.networks.list(filters={"label": label}):
        with contextlib.suppress(APIError):
            network.remove()


if __name__ == "__main__":
    main(sys.argv[1])
