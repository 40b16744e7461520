"""The settings of a small HDFS, as its processes read them from XML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

LOG4J = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
# The published jars have no web pages, and a server without them does not start: empty ones do for WebHDFS and /jmx.
WEB_XML = '<?xml version="1.0" encoding="UTF-8"?>\n<web-app version="2.4" xmlns="http://java.sun.com/xml/ns/j2ee"/>\n'
APPS = ("hdfs", "datanode")
# Of clients: a file that is closed asks whether its block is complete after 20 ms, not after 400.
CLIENT: Mapping[str, str] = {"dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20"}
SMALL: Mapping[str, object] = {
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.namenode.safemode.extension": 0,
    # A DataNode that is gone is known to be after 14 s, not after 10 minutes.
    "dfs.heartbeat.interval": 1,
    "dfs.namenode.heartbeat.recheck-interval": 2000,
    "dfs.namenode.stale.datanode.interval": 6000,
    "dfs.namenode.redundancy.interval.seconds": "1s",
    "dfs.namenode.handler.count": 8,
    "dfs.datanode.handler.count": 8,
    "dfs.namenode.fs-limits.min-block-size": 1024,
    "dfs.datanode.du.reserved": 0,
    "fs.du.interval": 600_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the processes listen: the NameNode at two, each DataNode at three."""

    rpc: int
    web: int
    datanodes: tuple[tuple[int, int, int], ...]

    @property
    def all(self) -> list[int]:
        return [self.rpc, self.web, *(port for three in self.datanodes for port in three)]


def client(uri: str, replication: int) -> dict[str, str]:
    """What a client must know; with `spark.hadoop.` before each name, Spark's settings."""
    return {"fs.defaultFS": uri, "dfs.replication": str(replication), **CLIENT}


def write(
    folder: Path, host: str, ports: Ports, replication: int, given: Mapping[str, object], number: int | None
) -> Path:
    """Write the settings of one process, the NameNode or a DataNode; the folder that goes on its class path."""
    name = "namenode" if number is None else f"datanode{number + 1}"
    common = {
        "dfs.namenode.rpc-address": f"{host}:{ports.rpc}",
        "dfs.namenode.http-address": f"{host}:{ports.web}",
        "dfs.namenode.name.dir": (folder / "namenode" / "data").as_uri(),
        "dfs.replication": replication,
        "dfs.namenode.safemode.min.datanodes": len(ports.datanodes),
        **SMALL,
    }
    if number is not None:
        data, web, ipc = ports.datanodes[number]
        common |= {
            "dfs.datanode.address": f"{host}:{data}",
            "dfs.datanode.http.address": f"{host}:{web}",
            "dfs.datanode.ipc.address": f"{host}:{ipc}",
            "dfs.datanode.hostname": host,  # where WebHDFS sends its clients
            "dfs.datanode.data.dir": (folder / name / "data").as_uri(),
        }
    core = {"fs.defaultFS": f"hdfs://{host}:{ports.rpc}", "hadoop.tmp.dir": str(folder / name / "tmp")}
    place = folder / name / "conf"
    place.mkdir(parents=True, exist_ok=True)
    (place / "core-site.xml").write_text(text({**core, **given}))
    (place / "hdfs-site.xml").write_text(text({**common, **given}))
    (place / "log4j.properties").write_text(LOG4J)
    for app in APPS:
        page = place / "webapps" / app / "WEB-INF" / "web.xml"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(WEB_XML)
    (place / "webapps" / "static").mkdir(exist_ok=True)
    return place


def text(values: Mapping[str, object]) -> str:
    """A file of settings."""
    rows = (
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in values.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{"".join(rows)}</configuration>\n'
