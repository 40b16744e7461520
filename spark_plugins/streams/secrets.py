"""Secrets in settings: never in a file, and never where Spark would show them.

A value may name a variable of the environment, ``${env:NAME}``, in any setting. What is secret: options that are
declared so, and free options (those of Spark's reader, say) that Spark itself would redact by `spark.redaction.regex`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epochal.sinks.config.kinds import class_of
from epochal.sinks.config.options import Faults
from epochal.sinks.config.settings import Settings
from epochal.sinks.config.texts import parse_names
from epochal.spark_plugins.streams.options import Source
from epochal.spark_plugins.streams.reading import PREFIX, Given
from epochal.txn.errors import OptionError

REDACTION = "spark.redaction.regex"
DEFAULT = "(?i)secret|password|token|access[.]?key"  # Spark's
_REFERENCE = re.compile(r"\$\{env:([^}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MASK = "*****"
IN_A_FILE = "this is a secret, and files are copied and shared. Write ${env:NAME} and set that variable"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The texts of a stream with the environment's values in them."""

    own: Mapping[str, str]
    secrets: frozenset[str]  # values that no message may have


def resolve(given: Given, stream: str, faults: Faults, redaction: str = DEFAULT) -> Resolved:
    """A stream's texts, ready to be understood; secrets in the wrong place and missing variables are noted."""
    own, secrets = dict(given.streams[stream]), set[str]()
    hides = _compiled(redaction)
    for key, text in given.streams[stream].items():
        where = _spelled(given, stream, key)
        variables = _REFERENCE.findall(text)
        own[key] = _substituted(text, where, faults)
        if (declared := _is_secret(own, key, text, hides)) is None:
            continue
        secrets |= {own[key], *(os.environ.get(name, "") for name in variables)}
        full = f"{PREFIX}{stream}.{key}"
        if variables:
            continue
        if given.is_in_file(stream, key):
            faults.add(f"{where}: {IN_A_FILE}; or leave it out and pass {full} to spark-submit with --conf")
        elif declared and not hides.search(full):
            faults.add(f"{where}: Spark would show this secret in its UI. Write ${{env:NAME}}, or extend {REDACTION}")
    return Resolved(own, frozenset(secrets - {""}))


def resolve_session(given: Given, faults: Faults) -> dict[str, str]:
    """The settings of the session that is to be made, in the same way."""
    hides = _compiled(given.spark.get(REDACTION, DEFAULT))
    for key, text in given.spark.items():
        secret = key != REDACTION and (hides.search(key) or hides.search(text))
        if secret and not _REFERENCE.search(text):
            faults.add(f"{key}: {IN_A_FILE}; or leave it out and pass it to spark-submit with --conf")
    return {key: _substituted(text, key, faults) for key, text in given.spark.items()}


def mask(text: str, secrets: frozenset[str]) -> str:
    """A message without the secrets.

    >>> mask("cannot log in with hunter2", frozenset({"hunter2"}))
    'cannot log in with *****'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def _compiled(redaction: str) -> re.Pattern[str]:
    """Spark's expression is one of Java's; nearly all of them mean the same in Python."""
    try:
        return re.compile(redaction)
    except re.error as fault:
        advice = "Which settings are secret must be known here too: use an expression that Java and Python both know"
        raise OptionError(REDACTION, [f"{redaction!r} is none that Python knows: {fault}. {advice}"]) from None


def _substituted(text: str, where: str, faults: Faults) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        if not faults.check(_VARIABLE.fullmatch(name) is not None, f"{where}: {found[0]} names no variable"):
            return ""
        faults.check(name in os.environ, f"{where}: {found[0]}: the environment has no {name}")
        return os.environ.get(name, "")

    return type(text)(_REFERENCE.sub(value, text))  # a list stays one


def _is_secret(own: Mapping[str, str], key: str, text: str, hides: re.Pattern[str]) -> bool | None:
    """Whether a setting is secret: True by its declaration, False by its name or value; None if it is not."""
    head, _, option = key.partition(".")
    kind = Source if head == "source" else _kind_of(own, head)
    if kind is None:
        return None
    one = Settings(kind, "", Faults("")).declared(option)
    if one is not None and one.option.secret is True:
        return True
    free = one is None or one.is_mapping
    name = option.partition(".")[2] if one is not None else option
    return False if free and (hides.search(name) or hides.search(text)) else None


def _kind_of(own: Mapping[str, str], sink: str) -> Any:
    """The class of a sink's options; None if this is no sink, or one that declares none."""
    if sink not in parse_names(own.get("sinks", "")):
        return None
    try:
        return class_of(own.get(f"{sink}.type", ""))
    except ModuleNotFoundError:  # which is noted when the sink is made
        return None


def _spelled(given: Given, stream: str, key: str) -> str:
    """A setting as it is written where it comes from."""
    head, _, option = key.partition(".")
    if head in parse_names(given.streams[stream].get("sinks", "")):
        return given.spelling.sink_prefix(stream, head) + option
    return given.spelling.stream_prefix(stream) + key
