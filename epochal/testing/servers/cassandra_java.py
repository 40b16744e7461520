"""The command that runs a node: a small heap, a quick start, and nothing written outside the node's folder.

With the C1 compiler alone a node starts in 7 to 10 s instead of 13 to 15. An archive of its classes saved 1.2 s more,
but needs a training run and 56 MB in the cache, so it is not used.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from epochal.testing.servers.java import QUICK, Java

MAIN = "org.apache.cassandra.service.CassandraDaemon"
SMALL = (
    "-Xms128m",
    "-Xmx1g",
    "-Xss512k",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:ReservedCodeCacheSize=96m",
)
# From conf/jvm*-server.options of Cassandra 5.0.
EXPORTS = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.unsupported/sun.misc",
)
OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
)
PROPERTIES = {
    "java.awt.headless": "true",
    "java.net.preferIPv4Stack": "true",
    "jdk.attach.allowAttachSelf": "true",
    "io.netty.tryReflectionSetAccessible": "true",
    "cassandra-foreground": "yes",
    "cassandra.libjemalloc": "-",
    "cassandra.disable_tcactive_openssl": "true",
    "cassandra.superuser_setup_delay_ms": "0",
    "cassandra.shutdown_announce_in_ms": "0",
    "cassandra.skip_wait_for_gossip_to_settle": "0",
    "cassandra.consistent.rangemovement": "false",
}
LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


def command(java: Java, jars: Sequence[Path], folder: Path, *, nodes: int, options: Sequence[str] = ()) -> list[str]:
    """The whole command. The given options come last, so they override those here."""
    jamm = next(jar for jar in jars if "jamm-" in jar.name)  # measures objects, so that caches respect their limits
    properties = {
        **PROPERTIES,
        "java.io.tmpdir": str(folder / "tmp"),  # native libraries are unpacked there and remain after a kill
        "jna.tmpdir": str(folder / "tmp"),
        "cassandra.config": (folder / "cassandra.yaml").as_uri(),
        "logback.configurationFile": str(folder / "logback.xml"),
        "cassandra.logdir": str(folder),
        "cassandra.storagedir": str(folder),
        # How long a node waits for others before it joins; a single node need not wait.
        "cassandra.ring_delay_ms": "0" if nodes == 1 else "2000",
        "cassandra.available_processors": str(os.cpu_count() or 1),
    }
    if java.major > 17:
        properties["java.security.manager"] = "allow"
    return [
        str(java.command),
        f"-javaagent:{jamm}",
        *QUICK,
        *SMALL,
        *(f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTS),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *options,
        *("-cp", os.pathsep.join(str(jar) for jar in jars), MAIN),
    ]
