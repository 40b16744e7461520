"""Which options need Spark's JVM, and so do not work on Spark Connect. No job runs, and nothing is read."""

from __future__ import annotations

from epochal.sinks.files.formats import digesting, joining
from epochal.sinks.files.options import FileOptions


def faults(options: FileOptions) -> list[str]:
    """What keeps these options from Spark Connect."""
    found = []
    if options.format in joining.BY_BLOCKS and options.rolling is not None:
        found.append(f"rolling: with format={options.format!r} parts are joined in Spark's JVM")
    if options.encrypts:
        found.append("options: the rows of encrypted files can only be counted in Spark's JVM, which has the key")
    if options.format in digesting.LINES:
        # The lines of the files are counted, and must be as many as those that the rows make.
        unsure = [key for key in options.writer_options if digesting.faults(options.format, _only(options, key))]
        unsure += [key for key in options.writer_options if key.lower() == "pretty"]
        found += [f"options[{key!r}]: the rows in files are counted by their lines" for key in unsure]
    elif options.format not in (*digesting.TYPED, *digesting.COUNTED):
        found.append(f"format={options.format!r}: the rows in its files cannot be counted without Spark's JVM")
    return found


def _only(options: FileOptions, key: str) -> dict[str, str]:
    return {key: options.writer_options[key]}
