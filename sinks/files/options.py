"""The options of a rolling-file sink: each is declared once, here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from epochal.sinks.config.declaring import Option, SinkName, SinkOptions, declared
from epochal.sinks.config.options import Faults, nearest
from epochal.sinks.files.formats import avro, digesting, joining
from epochal.sinks.files.policies import buckets as bucketing
from epochal.sinks.files.policies.buckets import AnyBucket, Bucket, TimeBucket, Unit, folder_of
from epochal.sinks.files.policies.completion import Complete
from epochal.sinks.files.policies.rolling import Rolling
from epochal.sinks.storage.paths import spark_path

Format = Literal["parquet", "orc", "avro", "json", "csv", "text", "xml"]
Marker = Literal["none", "epoch", "bucket"]
ENCRYPTION = ("parquet.encryption.", "parquet.crypto.")
COMPRESSED = "mapreduce.output.fileoutputformat.compress"
RESERVED_OPTIONS = {"path": "give it as the first argument", "maxrecordsperfile": "use max_rows_per_file"}
_TIME = re.compile(rf"({'|'.join(get_args(Unit))})\(\s*([^,()]+?)\s*(?:,\s*([^,()]+?)\s*)?\)")


def parse_buckets(text: str) -> list[str | TimeBucket]:
    """Columns and time buckets, as Spark settings have them.

    >>> parse_buckets("region, hour(ordered_at, Europe/Berlin)")
    ['region', TimeBucket(column='ordered_at', unit='hour', timezone='Europe/Berlin', name=None)]
    """
    found: list[str | TimeBucket] = []
    for part in re.split(r",(?![^(]*\))", text):
        match = _TIME.fullmatch(part.strip())
        call = re.fullmatch(r"(\w+)\((.*)\)", part.strip())
        if match:
            found.append(TimeBucket(match[2], cast("Unit", match[1]), timezone=match[3] or "UTC"))
        elif call:
            units = get_args(Unit)
            hint = nearest(call[1].lower(), units)
            raise ValueError(
                f"{part.strip()!r}: a time bucket is written as unit(column) or unit(column, time zone), with the unit "
                f"{', '.join(units[:-1])} or {units[-1]}{hint}"
            )
        elif part.strip():
            found.append(part.strip())
    return found


def check_buckets(faults: Faults, option: str, given: Any) -> tuple[AnyBucket, ...]:
    """The parts of a bucket's folder, each with a name of its own."""
    if isinstance(given, str | TimeBucket | Bucket) or not isinstance(given, Sequence):
        faults.add(f"{option}={given!r}: a list of column names, TimeBuckets and Buckets")
        return ()
    for bucket in given:
        good = isinstance(bucket, TimeBucket | Bucket) or (isinstance(bucket, str) and bucket != "")
        faults.check(good, f"{option}: {bucket!r} is neither a column name nor a TimeBucket nor a Bucket")
    keys = [folder_of(b) for b in given if isinstance(b, str | TimeBucket | Bucket)]
    faults.check(len(set(keys)) == len(keys), f"{option}: {keys} names a folder twice; give a TimeBucket another name=")
    for key in keys:
        faults.check(
            not key.startswith("."),
            f"{option}: a folder named {key!r} begins with a dot, so Spark would not read it; rename the column",
        )
        faults.check(len(bucketing.escape(key).encode()) <= 100, f"{option}: {key!r} is too long for a folder's name")
    return tuple(given)


def check_writer_options(faults: Faults, option: str, given: Any) -> dict[str, str]:
    """The writer's options. Values stay out of the messages: they may be keys or passwords."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        faults.add(f"{option}: a dictionary of the writer's options, not {type(given).__name__}")
        return {}
    for key, value in given.items():
        if key.lower() in RESERVED_OPTIONS:
            faults.add(f"{option}[{key!r}]: {RESERVED_OPTIONS[key.lower()]}")
        elif not isinstance(value, str):
            faults.add(f"{option}[{key!r}]: Spark's writer options are texts, not {type(value).__name__}")
    return dict(given)


@declared
@dataclass(frozen=True, eq=False, repr=False)
class FileOptions(SinkOptions):
    """How rows become files."""

    kind: ClassVar[str] = "files"

    path: Annotated[
        str,
        Option(
            "the target: a local folder or the URI of a Hadoop file system",
            expects="a folder or URI, not empty",
            journal="target",
            restore=spark_path,
        ),
    ]
    _: KW_ONLY
    format: Annotated[Format, Option("of the files, written by Spark's own writer ([Avro](#avro))", journal=True)] = (
        "parquet"
    )
    bucket_by: Annotated[
        Sequence[AnyBucket],
        Option(
            'columns, `TimeBucket(column, unit="day", timezone="UTC", name=)` (year, month, day, hour, minute) and '
            "`Bucket(name, function)`, where the function makes a Column of a DataFrame",
            check=check_buckets,
            parse=parse_buckets,
            shown_type="list of columns and buckets",
        ),
    ] = ()
    name: SinkName = "files"
    drop_bucket_columns: Annotated[
        bool | None,
        Option(
            "leave the bucket columns out of the files, as Hive tables expect",
            shown_default="`False` (text: `True`)",
        ),
    ] = None
    max_rows_per_file: Annotated[int | None, Option("start another file after so many rows")] = None
    rolling: Annotated[
        Rolling | None,
        Option(
            "parts stay open over epochs and appear when a limit is reached, see [below](#rolling)",
            expects="a Rolling, such as Rolling(max_bytes='64 MB')",
        ),
    ] = None
    compression: Annotated[
        str | None,
        Option(
            "a codec of the format",
            expects="the name of a codec, such as 'gzip'",
            shown_default="Spark's",
            journal=True,
        ),
    ] = None
    marker: Annotated[
        Marker | Complete,
        Option(
            '`"epoch"`: an empty `_SUCCESS-<epoch>-<lineage>` for each epoch; `"bucket"`: `_SUCCESS` in each bucket '
            "that an epoch writes to; a `Complete`: `_SUCCESS` when a bucket's time is over "
            "([below](#when-a-bucket-is-complete))"
        ),
    ] = "none"
    digest: Annotated[
        bool,
        Option(
            "digest each epoch's rows while they are written, for "
            "[`epochal audit`](operations.md#audit-is-every-row-there-exactly-once), see [below](#digests)"
        ),
    ] = False
    changed_columns: Annotated[
        Literal["refuse", "allow"],
        Option("what to do if the columns no longer fit the target's files, see [below](#when-columns-change)"),
    ] = "refuse"
    options: Annotated[
        Mapping[str, str] | None, Option("passed to Spark's writer as they are", check=check_writer_options)
    ] = None

    def __repr__(self) -> str:
        return f"RollingFileSink({self.path!r}, format={self.format!r}, name={self.name!r})"

    @property
    def buckets(self) -> tuple[AnyBucket, ...]:
        return tuple(self.bucket_by)

    @property
    def writer_options(self) -> Mapping[str, str]:
        return self.options or {}

    @property
    def drops_bucket_columns(self) -> bool:
        return self.format == "text" if self.drop_bucket_columns is None else self.drop_bucket_columns

    @property
    def folder_columns(self) -> list[str]:
        """The columns that are not in the files but in the names of folders."""
        return [bucket for bucket in self.buckets if isinstance(bucket, str)] if self.drops_bucket_columns else []

    @property
    def encrypts(self) -> bool:
        """Whether the writer gets keys that a reader would need too."""
        return any(name.lower().startswith(ENCRYPTION) for name in self.writer_options)

    @property
    def has_header(self) -> bool:
        """Whether files begin with a line that is no row."""
        return self.format == "csv" and str(_option(self.writer_options, "header")).lower() == "true"

    @property
    def most_rows(self) -> int | None:
        """How many rows Spark may write into one file."""
        limits = [self.max_rows_per_file, self.rolling.max_rows if self.rolling is not None else None]
        return min((limit for limit in limits if limit is not None), default=None)

    def check_together(self, faults: Faults) -> None:
        writer = self.writer_options
        codec = self.compression or _option(writer, "compression") or _option(writer, "codec")
        faults.check(
            not (self.format == "text" and self.buckets and self.drop_bucket_columns is False),
            "drop_bucket_columns=False: text holds one column, so bucket columns have to be dropped",
        )
        timed = any(isinstance(bucket, TimeBucket) for bucket in self.buckets)
        faults.check(
            timed or not isinstance(self.marker, Complete),
            f"marker={self.marker!r}: only a TimeBucket in bucket_by tells when a bucket is complete",
        )
        if self.format == "avro":
            _check_avro(codec, writer, faults, rolls=self.rolling is not None)
        if self.digest is True:
            for fault in digesting.faults(self.format, writer):
                faults.add(fault)
        if isinstance(self.rolling, Rolling):
            _check_rolling(self.format, codec, self.marker, faults)
            _check_joinable(self.format, writer, faults)


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name), None)


def _check_rolling(format_: object, codec: object, marker: object, faults: Faults) -> None:
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


def _check_joinable(format_: object, options: Mapping[str, str], faults: Faults) -> None:
    """What a writer's options do to files that are joined byte by byte."""
    if format_ not in joining.BY_BYTES:
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


def _check_avro(codec: object, options: Mapping[str, str], faults: Faults, *, rolls: bool) -> None:
    if codec is not None:
        faults.one_of("compression", codec, avro.CODECS)
    faults.check(
        not (rolls and _option(options, "avroschemaurl")),
        "options['avroSchemaUrl']: with rolling give the schema itself as avroSchema: what is behind an address may "
        "change, and pieces of one part must be alike",
    )
