"""Files of changes: what was written is counted, torn files are errors."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.spark_plugins.recovery.changelog import changes, plain
from epochal.spark_plugins.recovery.names import Version
from tests.spark_plugins.recovery.written import Record, lz4, tagged, untagged, with_lineage

keys = st.binary(min_size=4, max_size=12)
records: st.SearchStrategy[list[Record]] = st.lists(st.tuples(keys, st.none() | st.binary(max_size=20)), max_size=30)


@given(records, st.sampled_from([untagged, tagged]))
def test_records_are_counted_and_the_last_change_of_a_key_wins(written: list[Record], layout: object) -> None:
    assert callable(layout)
    last = dict(written)
    found = changes(layout(written), keys=True)

    assert found.rows == len(written)
    assert found.live == {key for key, value in last.items() if value is not None}
    assert found.gone == {key for key, value in last.items() if value is None}


@given(records)
def test_a_lineage_stands_before_the_records(written: list[Record]) -> None:
    line = [(3, "a"), (4, "b")]
    found = changes(with_lineage(untagged(written), line))

    assert found.rows == len(written)
    assert found.lineage == (Version(3, "a"), Version(4, "b"))


@given(st.binary(max_size=2000), st.integers(1, 300))
def test_frames_of_lz4_are_put_together(content: bytes, size: int) -> None:
    assert plain(lz4(content, size=size), "lz4") == content


def test_compressed_frames_are_unpacked() -> None:
    import struct

    import pyarrow as pa

    content = b"state" * 1000
    packed = pa.Codec("lz4_raw").compress(content, asbytes=True)
    frame = b"LZ4Block\x25" + struct.pack("<ii", len(packed), len(content)) + b"\0\0\0\0" + packed

    assert plain(frame, "lz4") == content
    assert plain(pa.compress(content, "zstd", asbytes=True), "zstd") == content


def test_another_codec_is_not_read() -> None:
    assert plain(b"", "snappy") is None


@pytest.mark.parametrize(
    "data", [b"no frame", lz4(b"x" * 50)[:40], b"LZ4Block\x25" + b"\x05\0\0\0\x09\0\0\0\0\0\0\0abcde"]
)
def test_a_torn_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="state file in lz4"):
        plain(data, "lz4")


@given(st.lists(st.tuples(keys, st.binary(max_size=9)), min_size=1, max_size=5), st.data())
def test_a_file_that_ends_too_early_is_an_error(written: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    whole = untagged(written)
    cut = data.draw(st.integers(1, 3))

    with pytest.raises(ValueError, match="ends in the middle"):
        changes(whole[:-cut])


def test_a_record_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown kind, 0x7f"):
        changes(b"\x00\x02v2\x7f")


def test_a_key_of_a_negative_length_is_an_error_and_not_read_for_ever() -> None:
    # Before: the key would end 4 bytes before the end, and the value after it at this very record.
    record = b"\x01" + struct.pack(">i", -13)

    with pytest.raises(ValueError, match="negative length"):
        changes(b"\x00\x02v2" + record + struct.pack(">i", 4))
