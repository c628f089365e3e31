"""What people type behind the options that several commands share."""

import pytest
import typer

from edge_tools.options import parse_bytes, parse_milliseconds


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("4096", 4096), ("12 b", 12), ("2kb", 2048), ("64K", 65536), ("64 KiB", 65536), ("1.5 MB", 1572864)],
)
def test_sizes_are_read_as_people_write_them(text: str, n_bytes: int) -> None:
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "KB", "-1", "1e3", "64 apples", "30ms"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "milliseconds"), [("30ms", 30), ("0.03 s", 30), ("30", 30), ("500µs", 0.5)])
def test_times_are_read_as_people_write_them(text: str, milliseconds: float) -> None:
    assert parse_milliseconds(text) == milliseconds


@pytest.mark.parametrize("text", ["", "ms", "-1ms", "64MB"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time"):
        parse_milliseconds(text)
