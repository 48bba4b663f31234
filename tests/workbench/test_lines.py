import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.errors import RunDirError
from lenity.workbench.lines import LineLog, read_lines


def lines(path):
    return [line for _, line in read_lines(path)]


def test_lines_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "log"
    with LineLog(path) as log:
        log.append(["a", "", "ünï"])
        log.append([])
        log.append(["d"])
    assert list(read_lines(path)) == [(1, "a"), (2, ""), (3, "ünï"), (4, "d")]
    assert path.read_bytes() == "a\n\nünï\nd\n".encode()
    assert lines(tmp_path / "none") == []


@given(data=st.binary(max_size=40).map(lambda b: b.replace(b"\x0c", b"\n")))
def test_what_was_torn_is_neither_read_nor_written_on(data, tmp_path_factory):
    """Whatever stands behind the last newline is dropped by who appends, ignored by who reads."""
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(data)
    whole = data[: data.rfind(b"\n") + 1]
    before = lines(path)
    assert len(before) == whole.count(b"\n")
    with LineLog(path, sync=False) as log:
        assert path.read_bytes() == whole
        log.append(["next"])
    assert lines(path) == [*before, "next"]


def test_a_torn_end_longer_than_a_block_is_dropped(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"whole\n" + b"x" * 200_000)
    LineLog(path).close()
    assert path.read_bytes() == b"whole\n"


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "log"
    write, calls = os.write, []

    def short(file, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(file, data[:3])

    with LineLog(path) as log:
        log.append(["first"])
        monkeypatch.setattr(os, "write", short)
        with pytest.raises(RunDirError, match="No space left"):
            log.append(["second", "third"])
        monkeypatch.undo()
        assert lines(path) == ["first"]
        log.append(["fourth"])
    assert lines(path) == ["first", "fourth"]
