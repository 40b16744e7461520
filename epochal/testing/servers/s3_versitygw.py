"""versitygw: an object is a file, and requests are answered side by side. Go's tool chain builds it once."""

from __future__ import annotations

import http.client
import secrets
from collections.abc import Callable

from epochal.testing.servers import go_programs
from epochal.testing.servers.options import S3Options
from epochal.testing.servers.s3_process import HOST, S3Process
from epochal.testing.servers.supervisor import Supervisor

REGION = "us-east-1"
HEALTH = "/health-of-the-server"  # a name that no bucket can have


class Versitygw(S3Process):
    """What it has answered is there after a restart."""

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: self.asked("GET", HEALTH) == http.client.OK)


def server(supervisor: Supervisor, port: int, options: S3Options, tell: Callable[[str], None] | None) -> S3Process:
    """The server, not started yet. Its credentials are its own, and in no command line."""
    program = go_programs.built(go_programs.VERSITYGW, tell)
    home = supervisor.folder
    data = home / "data"
    (data / options.bucket).mkdir(parents=True, exist_ok=True)  # a folder there is a bucket
    settings = ["--port", f"{HOST}:{port}", "--region", REGION, "--health", HEALTH, "--keep-alive", "--quiet"]
    command = [str(program), *settings, "posix", str(data)]
    made = Versitygw(supervisor, f"S3 on {HOST}:{port}", command, home, home / "log", timeout=options.timeout)
    key, secret = f"epochal{secrets.token_hex(8)}", secrets.token_urlsafe(32)
    made.variables = {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
    made.credentials = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": REGION}
    return made
