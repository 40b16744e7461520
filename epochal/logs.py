"""Log lines as JSON, for programs that read logs. Standard library only; docs/observability.md has a set-up."""

from __future__ import annotations

import json
import logging

_OWN = {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the facts of the line's `extra`.

    >>> record = logging.LogRecord("epochal", logging.INFO, "", 0, "epoch %s", (42,), None)
    >>> record.created, record.epoch = 0.0, 42
    >>> JsonFormatter().format(record)
    '{"time": "1970-01-01T00:00:00.000Z", "level": "INFO", "logger": "epochal", "message": "epoch 42", "epoch": 42}'
    """

    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record)
        line = {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        line |= {name: value for name, value in vars(record).items() if name not in _OWN and name not in line}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # logging's name
        from datetime import UTC, datetime

        when = datetime.fromtimestamp(record.created, UTC)
        text = when.strftime(datefmt) if datefmt else when.isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
