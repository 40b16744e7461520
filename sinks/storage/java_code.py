"""Small Java classes of our own, compiled in Spark's JVM when they are first used: no jar has to be shipped.

Spark includes a compiler, Janino, for the code that it generates from queries. A class that does in one call what
Python would do in dozens of messages to the JVM saves a large part of an epoch's time.
"""

from __future__ import annotations

import importlib.resources
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_classes: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # by the gateway to a JVM
_lock = threading.Lock()


def new(spark: SparkSession, package: str, name: str) -> Any:
    """A new object of the class ``epochal.<name>``, whose source is ``<name>.java`` in a package.

    It may use the classes that were compiled before it.
    """
    gateway: Any = spark.sparkContext._gateway
    with _lock:
        known = _classes.setdefault(gateway, {})
        if name not in known:
            newest = list(known.values())[-1] if known else None
            known[name] = _compiled(spark, package, name, newest)
        return known[name].newInstance()


def _compiled(spark: SparkSession, package: str, name: str, newest: Any) -> Any:
    jvm: Any = spark._jvm
    source = importlib.resources.files(package).joinpath(f"{name}.java").read_text(encoding="utf-8")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    # This loader has the user's jars too: a file system may come from one of them.
    users = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    compiler.setParentClassLoader(newest.getClassLoader() if newest is not None else users)
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(f"epochal.{name}")
