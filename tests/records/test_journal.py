"""The journal under truncation, flipped bits, full disks, killed writers and concurrent readers."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bocl.errors
from bocl.errors import FolderError, InputError, WorkError
from bocl.records import journal as journal_module
from bocl.records.journal import BEGINNING, Journal, Line, decode, encode, read

RECORDS = [
    {"kind": "start", "seed": 7},
    {"kind": "trial", "widths": [3, 0, 12], "accuracy": 0.1 + 0.2, "note": 'a "quote"\nand é'},
    {"kind": "task", "row": [0.5, 1.0], "nested": {"failed": None, "ok": True}},
]

SOURCE = Path(bocl.errors.__file__).parents[1]


def write(path: Path, records=RECORDS) -> bytes:
    with Journal.open(path) as journal:
        for record in records:
            journal.append(record)
    return path.read_bytes()


def start_python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class TestLines:
    @given(st.dictionaries(st.text(), json_values, max_size=5))
    def test_what_goes_in_comes_out(self, record):
        line, sha256 = encode(record)
        assert line.count(b"\n") == 1
        assert decode(line) == Line(BEGINNING, sha256, record)

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_floats_keep_every_bit(self, number):
        assert decode(encode({"x": number})[0]).record["x"].hex() == number.hex()

    def test_a_line_is_sorted_compact_json(self):
        line, _ = encode({"b": (1, 2), "a": {"d": 1, "c": 2}})
        assert line.endswith(b',"record":{"a":{"c":2,"d":1},"b":[1,2]}}\n')
        assert json.loads(line)["record"] == {"a": {"c": 2, "d": 1}, "b": [1, 2]}

    def test_order_of_keys_does_not_matter(self):
        assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})

    def test_nan_becomes_null(self):
        assert decode(encode({"accuracy": math.nan})[0]).record == {"accuracy": None}

    @pytest.mark.parametrize(
        ("record", "words"),
        [
            ({"a": {"b": [1.0, math.inf]}}, r"record\.a\.b\[1\]: inf"),
            ({"a": {1: 2}}, r"record\.a: the key 1"),
            ({"a": {1, 2}}, r"record\.a: a set"),
            ({"a": b"bytes"}, r"record\.a: a bytes"),
        ],
    )
    def test_what_json_cannot_hold_is_refused_by_name(self, record, words):
        with pytest.raises(InputError, match=words):
            encode(record)

    def test_a_checked_line_that_is_no_object_is_damaged(self):
        for payload in (b"[]", b"{"):
            hashes = f'{{"before":"{BEGINNING}","sha256":"{journal_module._hash(BEGINNING, payload)}","record":'
            assert decode(hashes.encode() + payload + b"}\n") is None


class TestFile:
    def test_append_then_read(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        write(path)
        assert read(path) == RECORDS

    def test_reopening_appends(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        write(path, RECORDS[:1])
        with Journal.open(path) as journal:
            assert journal.records == RECORDS[:1]
            journal.append(RECORDS[1])
        assert read(path) == RECORDS[:2]

    def test_a_refused_record_leaves_no_trace(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with Journal.open(path) as journal:
            journal.append(RECORDS[0])
            with pytest.raises(InputError):
                journal.append({"loss": math.inf})
            journal.append(RECORDS[1])
        assert read(path) == RECORDS[:2]

    def test_one_write_then_one_sync_for_each_record(self, tmp_path, monkeypatch):
        calls = []
        write_bytes, sync = os.write, os.fsync
        with Journal.open(tmp_path / "journal.jsonl") as journal:
            monkeypatch.setattr(os, "write", lambda fd, data: calls.append(data) or write_bytes(fd, data))
            monkeypatch.setattr(os, "fsync", lambda fd: calls.append("sync") or sync(fd))
            journal.append(RECORDS[0])
        assert calls == [encode(RECORDS[0])[0], "sync"]

    def test_a_new_file_has_its_name_synced(self, tmp_path, monkeypatch):
        synced = []
        monkeypatch.setattr(journal_module, "sync_directory", synced.append)
        Journal.open(tmp_path / "journal.jsonl").close()
        assert synced == [tmp_path]
        write(tmp_path / "journal.jsonl")
        synced.clear()
        Journal.open(tmp_path / "journal.jsonl").close()
        assert synced == []

    def test_append_after_close_is_refused(self, tmp_path):
        journal = Journal.open(tmp_path / "journal.jsonl")
        journal.close()
        journal.close()
        with pytest.raises(WorkError, match="closed"):
            journal.append({})

    def test_missing_files_and_folders(self, tmp_path):
        with pytest.raises(FolderError, match="nowhere"):
            read(tmp_path / "nowhere.jsonl")
        with pytest.raises(FolderError, match="absent"):
            Journal.open(tmp_path / "absent" / "journal.jsonl")
        with pytest.raises(FolderError, match="directory"):
            Journal.open(tmp_path)

    def test_without_file_locks_writing_is_refused_and_reading_works(self, tmp_path, monkeypatch):
        path = tmp_path / "journal.jsonl"
        write(path)
        monkeypatch.setattr(journal_module, "CAN_LOCK", False)
        with pytest.raises(FolderError, match="lock"):
            Journal.open(path)
        assert read(path) == RECORDS


class TestDamage:
    def test_cut_at_every_length(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        whole = write(path)
        ends = [0, *(at + 1 for at, byte in enumerate(whole) if byte == ord("\n"))]
        for length in range(len(whole) + 1):
            path.write_bytes(whole[:length])
            kept = sum(end <= length for end in ends[1:])
            assert read(path) == RECORDS[:kept]
            assert path.stat().st_size == length, "reading changes nothing"
            with Journal.open(path) as journal:
                assert journal.records == RECORDS[:kept]
                assert path.stat().st_size == length, "opening changes nothing"
                journal.append({"after": length})
            assert read(path) == [*RECORDS[:kept], {"after": length}]

    @pytest.mark.parametrize("bit", range(8))
    def test_a_flipped_bit_in_every_byte(self, tmp_path, bit):
        """Damage is refused, the file untouched, unless the very end is gone: that is what a torn append leaves."""
        path = tmp_path / "journal.jsonl"
        whole = write(path)
        last = len(whole) - len(b"}\n")
        for at in range(len(whole)):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            for reader in (lambda: read(path), lambda: open_and_close(path)):
                if at < last or damaged[at] == ord("\n"):
                    with pytest.raises(FolderError, match=r"journal\.jsonl, line [123]: damaged"):
                        reader()
                    assert path.read_bytes() == damaged
                else:
                    assert reader() == RECORDS[:-1]

    def test_the_damaged_line_is_named(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        lines = write(path).splitlines(keepends=True)
        path.write_bytes(lines[0] + lines[1].replace(b"trial", b"trail") + lines[2])
        with pytest.raises(FolderError, match=r"journal\.jsonl, line 2: damaged"):
            read(path)

    def test_a_tail_of_zeros_is_torn(self, tmp_path):
        """Some file systems lengthen a file before its data arrives."""
        path = tmp_path / "journal.jsonl"
        whole = write(path)
        path.write_bytes(whole + bytes(100))
        assert open_and_close(path) == RECORDS
        assert path.read_bytes() == whole + bytes(100)
        with Journal.open(path) as journal:
            journal.mend()
        assert path.read_bytes() == whole

    def test_another_kind_of_file_is_left_alone(self, tmp_path):
        path = tmp_path / "notes.txt"
        path.write_bytes(b"a single line of somebody's notes")
        with pytest.raises(FolderError, match="line 1"):
            Journal.open(path)
        assert path.read_bytes() == b"a single line of somebody's notes"

    def test_refusing_a_damaged_file_releases_its_lock(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b"damage\n" + encode({})[0])
        with pytest.raises(FolderError, match="damaged"):
            Journal.open(path)
        path.unlink()
        assert open_and_close(path) == []


class TestChain:
    """Whole lines that were moved, doubled or left out, each with its own right hash."""

    LINES = 5

    def written(self, tmp_path) -> tuple[Path, list[bytes]]:
        path = tmp_path / "journal.jsonl"
        return path, write(path, [{"n": number} for number in range(self.LINES)]).splitlines(keepends=True)

    def refused(self, path: Path, lines: list[bytes], number: int) -> None:
        path.write_bytes(b"".join(lines))
        for reader in (read, open_and_close):
            with pytest.raises(FolderError, match=rf"journal\.jsonl, line {number}: it does not follow"):
                reader(path)
        assert path.read_bytes() == b"".join(lines)

    def test_each_line_names_the_one_before(self, tmp_path):
        _, lines = self.written(tmp_path)
        read_back = [decode(line) for line in lines]
        assert [line.before for line in read_back] == [BEGINNING, *(line.sha256 for line in read_back[:-1])]

    def test_a_journal_opened_again_goes_on_with_the_chain(self, tmp_path):
        path, lines = self.written(tmp_path)
        with Journal.open(path) as journal:
            assert journal.head == decode(lines[-1]).sha256
            journal.append({"n": self.LINES})
        assert len(read(path)) == self.LINES + 1

    @pytest.mark.parametrize("at", range(LINES - 1))
    def test_a_line_left_out_shows(self, tmp_path, at):
        path, lines = self.written(tmp_path)
        self.refused(path, lines[:at] + lines[at + 1 :], at + 1)

    @pytest.mark.parametrize("at", range(LINES))
    def test_a_line_doubled_shows(self, tmp_path, at):
        path, lines = self.written(tmp_path)
        self.refused(path, lines[: at + 1] + lines[at:], at + 2)

    @pytest.mark.parametrize("at", range(LINES - 1))
    def test_lines_swapped_show(self, tmp_path, at):
        path, lines = self.written(tmp_path)
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
        self.refused(path, lines, at + 1)

    def test_a_line_written_anew_shows_in_the_next(self, tmp_path):
        path, lines = self.written(tmp_path)
        lines[1], _ = encode({"n": "another"}, decode(lines[0]).sha256)
        self.refused(path, lines, 3)

    def test_a_journal_of_format_1_is_told_apart_from_damage(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b'{"check":"0123456789abcdef","record":{"kind":"start"}}\n')
        for reader in (read, open_and_close):
            with pytest.raises(FolderError, match=r"has format 1.*reads format 4"):
                reader(path)


def open_and_close(path: Path):
    with Journal.open(path) as journal:
        return journal.records


class TestFailedWrites:
    def test_a_full_disk_leaves_whole_lines_only(self, tmp_path, monkeypatch):
        path = tmp_path / "journal.jsonl"
        whole = write(path)
        real_write = os.write
        with Journal.open(path) as journal:
            monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:9]))
            with pytest.raises(WorkError, match="only part of the line"):
                journal.append({"a": 1})
            monkeypatch.undo()
            with pytest.raises(WorkError, match="closed"):
                journal.append({"a": 1})
        assert path.read_bytes() == whole

    def test_a_failed_sync_takes_the_line_back(self, tmp_path, monkeypatch):
        path = tmp_path / "journal.jsonl"
        whole = write(path)

        def fail(descriptor):
            raise OSError(errno.EIO, "the disk is gone")

        with Journal.open(path) as journal:
            monkeypatch.setattr(os, "fsync", fail)
            with pytest.raises(WorkError, match="the disk is gone"):
                journal.append({"a": 1})
        assert path.read_bytes() == whole


HOLD = """
import sys, time
from bocl.records.journal import Journal
journal = Journal.open(sys.argv[1])
print("open", flush=True)
time.sleep(60)
"""

APPEND = """
import sys
from bocl.records.journal import Journal
with Journal.open(sys.argv[1]) as journal:
    for index in range(int(sys.argv[2])):
        journal.append({"index": index, "filling": "x" * 3000})
        print(index, flush=True)
"""

OPEN = """
import sys
from bocl.errors import FolderError
from bocl.records.journal import Journal
try:
    Journal.open(sys.argv[1]).close()
except FolderError as error:
    print(error)
else:
    print("opened")
"""


class TestProcesses:
    def test_a_second_opener_in_this_process_is_refused(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with Journal.open(path), pytest.raises(FolderError, match="in use by another process"):
            Journal.open(path)
        assert open_and_close(path) == []

    def test_a_second_process_is_refused_until_the_first_closes(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with Journal.open(path):
            said, _ = start_python(OPEN, path).communicate(timeout=30)
            assert "in use by another process" in said
            assert str(path) in said
        said, _ = start_python(OPEN, path).communicate(timeout=30)
        assert said == "opened\n"

    def test_a_killed_holder_releases_the_lock(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with start_python(HOLD, path) as holder:
            assert holder.stdout.readline() == "open\n"
            with pytest.raises(FolderError, match="in use by another process"):
                Journal.open(path)
            holder.kill()
            holder.wait(timeout=30)
            assert open_and_close(path) == []

    def test_a_killed_writer_loses_nothing_it_acknowledged(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with start_python(APPEND, path, 1_000_000) as writer:
            for _ in range(20):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            writer.wait(timeout=30)
            rest = writer.stdout.read().split("\n")[:-1]  # a number without its newline was not finished
        acknowledged = int(rest[-1]) if rest else acknowledged
        found = [record["index"] for record in open_and_close(path)]
        assert found == list(range(len(found)))
        assert acknowledged + 1 <= len(found) <= acknowledged + 2

    def test_reading_while_another_process_writes(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        path.touch()
        seen = []
        with start_python(APPEND, path, 100) as writer:
            writer.stdout.readline()
            draining = threading.Thread(target=writer.stdout.read)
            draining.start()
            while writer.poll() is None:
                indices = [record["index"] for record in read(path)]
                assert indices == list(range(len(indices)))
                seen.append(len(indices))
            draining.join()
        assert writer.returncode == 0
        assert seen == sorted(seen)
        assert len(read(path)) == 100
