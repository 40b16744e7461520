"""The Java options of HDFS: small heaps and a quick start."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence

from epochal.testing.servers.java import QUICK

GOOD = (17, 21)  # tried on 17; Spark runs the same version of its client on 21 too
# Under the names of Hadoop's own command `hdfs`.
MAINS: Mapping[str, str] = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
}
FORMAT = ("-format", "-nonInteractive", "-force")
JVM = (
    "-Xmx256m",
    "-Xss512k",
    *QUICK,
    "-Djava.net.preferIPv4Stack=true",
    "-Dfile.encoding=UTF-8",
)


def options(given: Sequence[str]) -> list[str]:
    """Java's options; the given ones come last, so they override. The current user is the cluster's superuser."""
    return [*JVM, f"-DHADOOP_USER_NAME={getpass.getuser()}", *given]
