"""The options of a rolling-file sink, checked all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from epochal.sinks.config.options import Faults
from epochal.sinks.files.formats import avro, digesting, joining
from epochal.sinks.files.policies import buckets as bucketing
from epochal.sinks.files.policies.buckets import AnyBucket, Bucket, TimeBucket, folder_of
from epochal.sinks.files.policies.completion import Complete
from epochal.sinks.files.policies.rolling import Rolling

FORMATS = ("parquet", "orc", "avro", "json", "csv", "text", "xml")
MARKERS = ("none", "epoch", "bucket")
ENCRYPTION = ("parquet.encryption.", "parquet.crypto.")
COMPRESSED = "mapreduce.output.fileoutputformat.compress"
RESERVED_OPTIONS = {"path": "give it as the first argument", "maxrecordsperfile": "use max_rows_per_file"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How rows become files. Made by `checked_options`, so whoever has one need not look again."""

    path: str  # as it was given
    format: str
    buckets: tuple[AnyBucket, ...]
    name: str
    drop_bucket_columns: bool
    max_rows_per_file: int | None
    rolling: Rolling | None
    compression: str | None
    marker: str | Complete
    digest: bool
    writer: Mapping[str, str] = field(repr=False)  # values may be keys or passwords

    @property
    def title(self) -> str:
        """What the sink is called in errors and by `repr`."""
        return f"RollingFileSink({self.path!r}, format={self.format!r}, name={self.name!r})"

    @property
    def encrypts(self) -> bool:
        """Whether the writer gets keys that a reader would need too."""
        return any(name.lower().startswith(ENCRYPTION) for name in self.writer)

    @property
    def has_header(self) -> bool:
        """Whether files begin with a line that is no row."""
        return self.format == "csv" and str(_option(self.writer, "header")).lower() == "true"

    @property
    def most_rows(self) -> int | None:
        """How many rows Spark may write into one file."""
        limits = [self.max_rows_per_file, self.rolling.max_rows if self.rolling is not None else None]
        return min((limit for limit in limits if limit is not None), default=None)


def checked_options(
    path: str,
    *,
    format: str,  # noqa: A002  # what Spark's users know it as
    bucket_by: Sequence[AnyBucket],
    name: str,
    drop_bucket_columns: bool | None,
    max_rows_per_file: int | None,
    rolling: Rolling | None,
    compression: str | None,
    marker: str | Complete,
    digest: bool,
    options: Mapping[str, str] | None,
) -> Options:
    """What a sink was given, if all of it is right; else every fault in one error."""
    faults = Faults(f"RollingFileSink({path!r})")
    faults.check(isinstance(path, str) and path.strip() != "", "path: a folder or URI, not empty")
    faults.one_of("format", format, FORMATS)
    faults.sink_name(name)
    buckets = _checked_buckets(bucket_by, faults)
    _check_marker(marker, buckets, faults)
    if max_rows_per_file is not None:
        faults.above_zero("max_rows_per_file", max_rows_per_file)
    faults.check(
        compression is None or (isinstance(compression, str) and compression != ""),
        f"compression={compression!r}: the name of a codec, such as 'gzip'",
    )
    faults.check(
        drop_bucket_columns is None or isinstance(drop_bucket_columns, bool),
        f"drop_bucket_columns={drop_bucket_columns!r}: True or False",
    )
    faults.check(
        not (format == "text" and buckets and drop_bucket_columns is False),
        "drop_bucket_columns=False: text holds one column, so bucket columns have to be dropped",
    )
    writer = _checked_writer(options, faults)
    codec = compression or _option(writer, "compression") or _option(writer, "codec")
    if format == "avro":
        _check_avro(codec, writer, faults, rolls=rolling is not None)
    if faults.check(isinstance(digest, bool), f"digest={digest!r}: True or False") and digest:
        for fault in digesting.faults(format, writer):
            faults.add(fault)
    _check_rolling(rolling, format, codec, marker, faults)
    _check_joinable(rolling, format, writer, faults)
    faults.done()
    return Options(
        path=path,
        format=format,
        buckets=buckets,
        name=name,
        drop_bucket_columns=drop_bucket_columns if drop_bucket_columns is not None else format == "text",
        max_rows_per_file=max_rows_per_file,
        rolling=rolling,
        compression=compression,
        marker=marker,
        digest=digest,
        writer=writer,
    )


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name), None)


def _check_rolling(given: object, format_: object, codec: object, marker: object, faults: Faults) -> None:
    if given is None:
        return
    if not faults.check(
        isinstance(given, Rolling), f"rolling={given!r}: a Rolling, such as Rolling(max_bytes='64 MB')"
    ):
        return
    joined = (*joining.BY_BYTES, *joining.BY_BLOCKS, *joining.MERGED)
    faults.check(
        format_ in joined, f"format={format_!r}: parts of it cannot be joined; rolling takes {', '.join(joined)}"
    )
    faults.check(
        format_ not in joining.BY_BYTES
        or (codec.lower() if isinstance(codec, str) else codec) in joining.BY_BYTES_CODECS,
        f"compression={codec!r}: files of it cannot be joined; with rolling, {format_} takes gzip or bzip2",
    )
    faults.check(marker != "bucket", "marker='bucket': with rolling, give a Complete, which says when a bucket is")


def _check_joinable(rolling: object, format_: object, options: Mapping[str, str], faults: Faults) -> None:
    """What a writer's options do to files that are joined byte by byte."""
    if rolling is None or format_ not in joining.BY_BYTES:
        return
    encoding = (_option(options, "encoding") or _option(options, "charset") or "").lower().replace("_", "-")
    faults.check(
        not encoding.startswith(("utf-16", "utf-32", "utf16", "utf32")),
        f"options['encoding']={encoding!r}: each file begins with a mark of its own, which would stand in the midst "
        "of a joined one; with rolling use UTF-8",
    )
    faults.check(
        _option(options, COMPRESSED) is None,
        f"options[{COMPRESSED!r}]: with rolling give compression= instead, which is checked",
    )


def _check_marker(given: object, buckets: Sequence[AnyBucket], faults: Faults) -> None:
    if not isinstance(given, Complete):
        faults.one_of("marker", given, MARKERS)
        return
    timed = any(isinstance(bucket, TimeBucket) for bucket in buckets)
    faults.check(timed, f"marker={given!r}: only a TimeBucket in bucket_by tells when a bucket is complete")


def _check_avro(codec: object, options: Mapping[str, str], faults: Faults, *, rolls: bool) -> None:
    if codec is not None:
        faults.one_of("compression", codec, avro.CODECS)
    faults.check(
        not (rolls and _option(options, "avroschemaurl")),
        "options['avroSchemaUrl']: with rolling give the schema itself as avroSchema: what is behind an address may "
        "change, and pieces of one part must be alike",
    )


def _checked_buckets(given: object, faults: Faults) -> tuple[AnyBucket, ...]:
    if isinstance(given, str | TimeBucket | Bucket) or not isinstance(given, Sequence):
        faults.add(f"bucket_by={given!r}: a list of column names, TimeBuckets and Buckets")
        return ()
    for bucket in given:
        good = isinstance(bucket, TimeBucket | Bucket) or (isinstance(bucket, str) and bucket != "")
        faults.check(good, f"bucket_by: {bucket!r} is neither a column name nor a TimeBucket nor a Bucket")
    keys = [folder_of(b) for b in given if isinstance(b, str | TimeBucket | Bucket)]
    faults.check(
        len(set(keys)) == len(keys), f"bucket_by: {keys} names a folder twice; give a TimeBucket another name="
    )
    for key in keys:
        faults.check(
            not key.startswith("."),
            f"bucket_by: a folder named {key!r} begins with a dot, so Spark would not read it; rename the column",
        )
        faults.check(len(bucketing.escape(key).encode()) <= 100, f"bucket_by: {key!r} is too long for a folder's name")
    return tuple(given)


def _checked_writer(given: object, faults: Faults) -> dict[str, str]:
    """The writer's options. Values stay out of the messages: they may be keys or passwords."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        faults.add(f"options: a dictionary of the writer's options, not {type(given).__name__}")
        return {}
    for key, value in given.items():
        if key.lower() in RESERVED_OPTIONS:
            faults.add(f"options[{key!r}]: {RESERVED_OPTIONS[key.lower()]}")
        elif not isinstance(value, str):
            faults.add(f"options[{key!r}]: Spark's writer options are texts, not {type(value).__name__}")
    return dict(given)
