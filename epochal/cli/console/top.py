"""``epochal top``: streams on a terminal, live.

`frame` makes one picture of the readings, without I/O; `run` shows it again and again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from epochal.cli.console.model import EpochLine, Level, Phase, SinkLine, StreamSnapshot
from epochal.cli.console.watch import Reading, Watched, latest_of, watch
from epochal.cli.text import counted, size
from epochal.txn.durations import lasting
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text

REFRESH = 1.0  # seconds
FIRST = 10.0  # seconds that the first frame waits for a reading
PARTS = 5  # open parts shown for a stream
COLUMNS = 52  # characters that a strip of epochs leaves to the other columns
STYLES = {Level.OK: "green", Level.INFO: "cyan", Level.WARNING: "yellow", Level.ERROR: "red"}
# One character an epoch; the letters are readable without colours too.
STRIP = {
    Phase.STAGING: ("s", "cyan"),
    Phase.STAGED: ("s", "cyan"),
    Phase.PREPARED: ("p", "yellow"),
    Phase.INTERRUPTED: ("x", "yellow"),
    Phase.COMMITTING: ("c", "blue"),
    Phase.HELD: ("H", "red"),
    Phase.UNKNOWN: ("?", "red"),
    Phase.VISIBLE: ("\u25a0", "green"),
}


def run(checkpoints: Sequence[str], journal: str | None, *, once: bool, as_json: bool) -> int:
    """Show the streams until `q` or Ctrl-C; with `once`, one frame."""
    if not as_json:
        _check_rich()
    streams = watch(checkpoints, journal)
    try:
        if as_json:
            return _print_json(streams, once=once)
        return _print_frames(streams, once=once)
    except KeyboardInterrupt:
        return 0


def _print_frames(streams: Sequence[Watched], *, once: bool) -> int:
    from rich.console import Console

    console = Console()
    if once or not console.is_terminal:
        readings = latest_of(streams, wait=FIRST)
        console.print(frame(readings, time.time(), width=console.width))
        return _code(readings)
    return _show(console, streams)


def _code(readings: Sequence[Reading]) -> int:
    """The exit code of one frame: that of the worst stream that could not be read. How those stand is in the frame."""
    return max(reading.code for reading in readings)


def _check_rich() -> None:
    try:
        import rich  # noqa: F401
    except ImportError:
        raise Refused(
            "`epochal top` needs rich, which is not installed: pip install 'epochal[top]'. `epochal status`, "
            "`epochal top --json` and `epochal ui` work without it"
        ) from None


def _print_json(streams: Sequence[Watched], *, once: bool) -> int:
    """One line of JSON for each refresh."""
    wait = FIRST
    while True:
        readings = latest_of(streams, wait=wait)
        print(json.dumps({"at": time.time(), "streams": [reading.to_json() for reading in readings]}), flush=True)
        if once:
            return _code(readings)
        wait = REFRESH
        time.sleep(REFRESH)


def frame(readings: Sequence[Reading], now: float, *, width: int) -> Group:
    """One picture of all streams, for a terminal of a width."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for reading in readings:
        parts += [*_stream(reading, now, width), Text()]
    return Group(*parts[:-1])


def _stream(reading: Reading, now: float, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    shot = reading.snapshot
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append_text(_text(reading.checkpoint, "bold"))
    if shot is not None:
        title.append("  ").append_text(_text(_driver(shot, now), "dim"))
    yield title
    if reading.error:
        yield _text(f"\u2717 {reading.error}", "red")
        if shot is None:
            return
        yield Text(f"as of {lasting(now - shot.at)} ago:", style="dim")
    if shot is None:
        return
    headline = _text(f"\u25cf {shot.headline.text}", STYLES[shot.headline.level])
    if shot.headline.command:
        headline.append_text(_text(f"  $ {shot.headline.command}", "bold"))
    yield headline
    yield _sinks(shot, epochs=max(8, width - COLUMNS))
    for sink in shot.sinks:
        if sink.error:
            yield _text(f"! {sink.name}: {sink.error}", "red")
    yield from _open(shot, now)


def _text(value: str, style: str = "") -> Text:
    """Text for the terminal. Names come from users and data: a control character in one must not reach it."""
    from rich.text import Text

    return Text("".join(c if c.isprintable() else "\ufffd" for c in value), style=style)


def _driver(shot: StreamSnapshot, now: float) -> str:
    driver = shot.driver
    doing = f", {driver.doing}" if driver.doing and driver.running else ""
    seen = f", seen {lasting(max(0.0, now - driver.seen))} ago" if driver.seen is not None else ""
    process = f"pid {driver.pid} on {driver.host}" if driver.pid is not None else "no driver"
    return f"generation {driver.generation}, {process}: {driver.liveness}{doing}{seen}"


def _sinks(shot: StreamSnapshot, *, epochs: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold dim", expand=False)
    for header in ("sink", "type"):
        table.add_column(header, no_wrap=True)
    for header in ("epoch", "behind", "lag", "rows/s"):
        table.add_column(header, justify="right", no_wrap=True)
    shown = shot.epochs[-epochs:]
    table.add_column(f"last {counted(len(shown), 'epoch')}", no_wrap=True)
    for sink in shot.sinks:
        table.add_row(
            _text(sink.name + ("" if sink.current else " (former)")),
            _text(sink.kind),
            "-" if sink.last is None else f"{sink.last:,}",
            Text(str(sink.behind), style="red" if sink.behind else ""),
            _lag(sink),
            "-" if sink.rows_per_second is None else f"{sink.rows_per_second:,.0f}",
            _strip(shown, sink.name) if sink.current else Text(),
        )
    return table


def _lag(sink: SinkLine) -> str:
    if sink.lag is None:
        return "-"
    return lasting(sink.lag) if sink.lag >= 10 else f"{sink.lag:.1f} s"


def _strip(epochs: Sequence[EpochLine], sink: str) -> Text:
    from rich.text import Text

    strip = Text()
    for line in epochs:
        own = line.sinks.get(sink)
        letter, style = STRIP[own.phase] if own is not None else ("\u00b7", "dim")
        strip.append(letter, style=style)
    return strip


def _open(shot: StreamSnapshot, now: float) -> Iterator[RenderableType]:
    from rich.text import Text

    for part in shot.open[:PARTS]:
        rows = "" if part.rows is None else f", {part.rows:,} rows"
        age = f"open for {lasting(now - part.first)}"
        yield _text(f"  {part.sink} {part.bucket or 'part'}: {size(part.bytes)}{rows}, {age}", "dim")
    if shot.open_count > PARTS:
        yield Text(f"  and {counted(shot.open_count - PARTS, 'more open part')}", style="dim")


def _show(console: Console, streams: Sequence[Watched]) -> int:
    from rich.live import Live

    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        wait = FIRST
        while True:
            live.update(frame(latest_of(streams, wait=wait), time.time(), width=console.width), refresh=True)
            wait = REFRESH
            if pressed(REFRESH) == "q":
                return 0


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits for a key, that many seconds at most; an empty text if none was pressed, or without a terminal."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import select
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)  # one key at a time, and Ctrl-C as ever

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return sys.stdin.read(1) if ready else ""

    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""
