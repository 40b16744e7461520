"""What to do about an epoch in doubt, a store that is down, a start that would be refused. Pure."""

from __future__ import annotations

from epochal.cli.console.model import Advice, Level
from epochal.cli.text import listed


def in_doubt(epoch: int, generations: list[int], *, running: bool | None) -> Advice:
    """For an epoch that is prepared and not decided."""
    what = f"Epoch {epoch} is staged in every sink and visible in none: Spark has not written commits/{epoch}."
    if len(generations) > 1:
        what += f" Generations {listed(generations)} have each prepared it; only one of them can become the epoch."
    if running:
        return Advice(level=Level.INFO, what=what, do="Nothing. The running query decides when Spark has checkpointed.")
    return Advice(
        level=Level.INFO if running is None else Level.WARNING,
        what=what,
        do=(
            "Start the query again: Spark replays the epoch, and one attempt becomes visible. "
            + ("If it runs, there is nothing to do. " if running is None else "")
            + f"Keep the staged data until then: if an old driver still writes commits/{epoch}, it is the only copy."
        ),
    )


def held(epoch: int, waiting: list[str], *, cause: str, recover: str, running: bool | None) -> Advice:
    """For an epoch that is decided and not visible everywhere."""
    sinks = ", ".join(waiting) or "no sink"
    what = f"Epoch {epoch} is decided and safe, but not yet visible in {sinks}." + (
        f" {_sentence(cause)}" if cause else ""
    )
    store = "Bring the store back. " if cause else ""
    if running:
        return Advice(
            level=Level.WARNING, what=what, do=f"{store}The running query tries again by itself; nothing is lost."
        )
    do = f"{store}Start the query again, or finish the epoch without it:"
    if running is None:
        do = f"{store}A running query finishes it by itself. If none runs:"
    return Advice(level=Level.WARNING, what=what, do=do, command=recover)


def not_staged(epoch: int, sink: str, reason: str) -> Advice:
    """For an epoch that a running driver cannot stage."""
    return Advice(
        level=Level.WARNING,
        what=f"Epoch {epoch} is not staged yet. {_sentence(f'{sink}: {reason}')}",
        do="Bring the store back. The running query tries again by itself; nothing is lost.",
    )


def under_way(epoch: int) -> Advice:
    """For an epoch that is decided and being committed at this moment."""
    return Advice(level=Level.INFO, what=f"Epoch {epoch} is decided, and the sinks are showing it.", do="Nothing.")


def refusal(reason: str, status: str) -> Advice:
    """For a stream whose next start would be refused."""
    return Advice(
        level=Level.ERROR,
        what=reason,
        do="The message names the choices. Nothing was written; the full status:",
        command=status,
    )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
