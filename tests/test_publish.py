"""Outputs that are published together, and temporary files of this and of killed processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flowinpaint import InputError, MissingFileError, read_flow, write_flow
from flowinpaint.cli.outputs import Outputs
from flowinpaint.evaluation.report import write_reports
from flowinpaint.io import atomic_path, new_folder, publishing, real_path
from flowinpaint.io import temporaries as module
from flowinpaint.io.files import check_output, check_target, write_bytes
from flowinpaint.io.temporaries import new_temporary, remove_stale, second_name
from flowinpaint.text_tables import write_text
from frame_folder import make_sample
from helpers import disk_events, run_cli

posix = pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
NAMES = ("a.flo", "b.pfm", "c.png")


def contents(folder: Path) -> dict[str, bytes]:
    """The files and folders below a folder; folders have no content."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def write_all(folder: Path, data: bytes = b"new") -> None:
    for name in NAMES:
        write_bytes(folder / name, data)


def fail_at(monkeypatch: pytest.MonkeyPatch, count: int, act: Callable[[], None]) -> None:
    """Call `act` before the rename of this number to a target, counted from 0."""
    replace, left = Path.replace, [count]

    def counted(self: Path, target: Path) -> Path:
        if Path(target).name in NAMES:
            left[0] -= 1
            if left[0] == -1:
                act()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", counted)


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestPublishing:
    def test_all_files_appear_when_the_block_ends(self, tmp_path: Path) -> None:
        with publishing():
            write_all(tmp_path)
            assert not set(NAMES) & contents(tmp_path).keys()
        assert contents(tmp_path) == dict.fromkeys(NAMES, b"new")

    def test_an_error_in_the_block_changes_nothing(self, tmp_path: Path) -> None:
        write_all(tmp_path, b"old")
        with pytest.raises(KeyboardInterrupt), publishing():
            write_all(tmp_path)
            raise KeyboardInterrupt
        assert contents(tmp_path) == dict.fromkeys(NAMES, b"old")

    @pytest.mark.parametrize("count", range(len(NAMES)))
    @pytest.mark.parametrize("old", [(), ("a.flo",), NAMES])
    def test_a_rename_that_fails_rolls_back_the_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, old: tuple[str, ...]
    ) -> None:
        for name in old:
            (tmp_path / name).write_bytes(b"old")
        fail_at(monkeypatch, count, full_disk)
        with pytest.raises(OSError, match="No space left on device"), publishing():
            write_all(tmp_path)
        assert contents(tmp_path) == dict.fromkeys(old, b"old")

    def test_it_rolls_back_where_files_can_have_one_name_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_all(tmp_path, b"old")
        monkeypatch.setattr(os, "link", lambda *_: full_disk())
        fail_at(monkeypatch, 2, full_disk)
        with pytest.raises(OSError, match="No space left"), publishing():
            write_all(tmp_path)
        assert contents(tmp_path) == dict.fromkeys(NAMES, b"old")
        monkeypatch.undo()
        with publishing():
            write_all(tmp_path)
        assert contents(tmp_path) == dict.fromkeys(NAMES, b"new")

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_between_the_renames_waits_for_all_of_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
    ) -> None:
        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(number, stop)
        try:
            fail_at(monkeypatch, 1, lambda: signal.raise_signal(number))
            with pytest.raises(KeyboardInterrupt), publishing():
                write_all(tmp_path)
            assert signal.getsignal(number) is stop
        finally:
            signal.signal(number, before)
        assert contents(tmp_path) == dict.fromkeys(NAMES, b"new")

    def test_a_block_joins_the_one_around_it(self, tmp_path: Path) -> None:
        with publishing():
            write_bytes(tmp_path / "a.flo", b"new")
            with pytest.raises(KeyboardInterrupt), publishing():
                write_bytes(tmp_path / "b.pfm", b"half")
                raise KeyboardInterrupt
            with pytest.raises(OSError, match=r"Errno 28.*b\.pfm"), atomic_path(tmp_path / "b.pfm"):
                raise OSError(28, "full")
            assert "a.flo" not in contents(tmp_path)
        assert contents(tmp_path) == {"a.flo": b"new"}

    def test_durable_files_are_on_the_disk_before_their_names_and_folders_after(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events = disk_events(monkeypatch)
        with publishing():
            write_all(tmp_path)
        assert events == ["name"] * 3
        events.clear()
        with new_folder(tmp_path / "x" / "y", durable=True), publishing(durable=True):
            write_all(tmp_path / "x" / "y")
        assert events == ["file"] * 3 + ["name"] * 3 + ["folder"] * (1 + 2)

    def test_a_full_disk_names_the_output(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Path, "write_bytes", lambda self, data: full_disk())
        with pytest.raises(OSError, match=r"No space left on device: .*/b\.pfm'"), publishing():
            write_bytes(tmp_path / "b.pfm", b"")
        assert contents(tmp_path) == {}


class TestOutputsOfCommands:
    @pytest.mark.parametrize("durable", [True, False])
    def test_durable_fills_and_evaluations_are_flushed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
    ) -> None:
        make_sample(tmp_path / "in" / "A" / "one")
        frame, flushed = tmp_path / "in/A/one", []
        fsync = os.fsync

        def logged(handle: int) -> None:
            flushed.append(handle)
            fsync(handle)

        monkeypatch.setattr(os, "fsync", logged)
        option = ["--durable"] if durable else []
        files = ["-o", tmp_path / "new/a.flo", "--preview", tmp_path / "new/a.png"]
        assert run_cli("fill", frame / "image.png", frame / "flow.flo", *files, "--method", "nearest", *option)[0] == 0
        assert len(flushed) == durable * (2 + 2)  # two files, their folder and the one above
        flushed.clear()
        runs = ["--root", tmp_path / "in", "--methods", "nearest", "--reference", "nearest", "--densities", "10"]
        assert run_cli("evaluate", *runs, "-o", tmp_path / "out", *option)[0] == 0
        # The folder of the records, a record and the folder above, three results and their folder.
        assert len(flushed) == durable * (3 + 4)

    def test_the_reports_of_an_evaluation_are_all_new_or_all_old(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flowinpaint.evaluation.report.as_json", lambda *_: {})
        monkeypatch.setattr("flowinpaint.evaluation.report.as_markdown", lambda *_: "")
        monkeypatch.setattr(f"{__name__}.NAMES", ("results.md",))
        fail_at(monkeypatch, 0, full_disk)
        with pytest.raises(OSError, match="No space left"):
            write_reports(tmp_path, [], [], "harmonic", {})
        assert contents(tmp_path) == {}

    def test_links_in_a_loop_are_a_sentence(self, tmp_path: Path) -> None:
        loop = tmp_path / "loop.flo"
        loop.symlink_to(tmp_path / "other.flo")
        (tmp_path / "other.flo").symlink_to(loop)
        for act in (
            lambda: write_flow(loop, np.zeros((2, 2, 2), np.float32)),
            lambda: Outputs(loop).check_names([tmp_path / "in.flo"]),
            lambda: Outputs(tmp_path / "a.flo").check_names([loop]),
            lambda: check_output(loop / "deeper.flo"),
            lambda: real_path(loop),
        ):
            with pytest.raises(InputError, match="must be a file or a folder, got a loop of symbolic links"):
                act()

    def test_names_that_no_file_can_have(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="a file name must have at most 255 bytes"):
            check_output(tmp_path / "new" / ("ü" * 128))
        with pytest.raises(InputError, match="must not have null characters"):
            check_target(tmp_path / "a\0b")
        field = np.zeros((2, 2, 2), np.float32)
        with pytest.raises(InputError, match=r"\\ud800.flo': a file name must have characters of the file system only"):
            write_flow(tmp_path / "\ud800.flo", field)
        for name in ("\ud800.flo", "\0.flo"):
            with pytest.raises(MissingFileError, match="there is no such file"):
                read_flow(tmp_path / name)
        longest = tmp_path / f"a.{'b' * 253}"
        write_bytes(longest, b"x")
        assert contents(tmp_path) == {longest.name: b"x"}

    def test_a_read_only_file_and_a_link_into_no_folder_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.flo").touch()
        (tmp_path / "link").symlink_to(tmp_path / "no" / "a.flo")
        with pytest.raises(InputError, match=r"link: the folder .*/no does not exist"):
            check_target(tmp_path / "link")
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path).is_dir())
        with pytest.raises(InputError, match="cannot write to this file, which is read-only"):
            check_target(tmp_path / "a.flo")


WRITER = """
import sys, time
from pathlib import Path
from flowinpaint.io.files import atomic_path
with atomic_path(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    time.sleep(60)
"""


@posix
def test_only_temporary_files_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = tmp_path / f".flowinpaint-00000000-{'0' * 16}.flo"  # of another host
    foreign.touch()
    (tmp_path / ".flowinpaint-notes").touch()
    own = new_temporary(tmp_path, ".flo")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "a.txt"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        remove_stale(tmp_path)
        assert contents(tmp_path).keys() == {foreign.name, ".flowinpaint-notes", own.path.name, name}
        other.kill()
    assert name in contents(tmp_path)
    write_bytes(tmp_path / "b.txt", b"")  # this process has already searched the folder
    assert name in contents(tmp_path)
    monkeypatch.setattr(module, "SEARCH_AGAIN", 0)
    write_bytes(tmp_path / "b.txt", b"")
    assert contents(tmp_path).keys() == {foreign.name, ".flowinpaint-notes", own.path.name, "b.txt"}
    own.remove()


def test_few_searched_folders_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SEARCHED", 2)
    for name in NAMES:
        (tmp_path / name).mkdir()
        new_temporary(tmp_path / name).remove()
    assert len(module._searched) <= 2


@pytest.mark.parametrize("make", [new_temporary, lambda folder: second_name(folder / "old")])
def test_a_temporary_file_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    def copied_in_part(path: Path, new: Path) -> None:
        new.write_bytes(path.read_bytes()[:2])
        full_disk()

    (tmp_path / "old").write_bytes(b"old")
    before = set(module._existing)
    monkeypatch.setattr(os, "link", lambda *_: full_disk())
    monkeypatch.setattr("shutil.copy2", copied_in_part)
    monkeypatch.setattr(os, "open", lambda *_: full_disk())
    with pytest.raises(OSError, match="No space left"):
        make(tmp_path)
    monkeypatch.undo()
    assert contents(tmp_path) == {"old": b"old"}
    assert module._existing == before


@posix
def test_a_temporary_file_that_was_just_removed_as_stale_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    removed: list[Path] = []

    def race(path: Path, *rest: int) -> int:
        handle = opened(path, *rest)
        if not removed and ".flowinpaint-" in str(path):
            removed.append(path)
            remove_stale(tmp_path)  # as another process, before this one has locked the file
        return handle

    monkeypatch.setattr(os, "open", race)
    temporary = new_temporary(tmp_path)
    assert removed[0] != temporary.path
    assert contents(tmp_path) == {temporary.path.name: b""}
    temporary.remove()


def test_what_a_block_cannot_remove_is_removed_at_exit(tmp_path: Path) -> None:
    """As if a signal had ended the blocks in the first instruction of their `__exit__`."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from flowinpaint.io import atomic_path, new_folder\n"
        "folder = Path(sys.argv[1])\n"
        "blocks = new_folder(folder), atomic_path(folder / 'a.txt'), new_folder(folder.parent / 'kept')\n"
        "for block in blocks: block.__enter__()\n"
        "blocks[2].__exit__(None, None, None)\n"
        "sys.stdout.write(str(len(list(folder.iterdir()))))\n"
        "import os, atexit; atexit._run_exitfuncs(); os._exit(0)"  # no generator is closed
    )
    command = [sys.executable, "-c", code, str(tmp_path / "new" / "out")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1"
    assert contents(tmp_path).keys() == {"new", "new/kept"}


@posix
def test_a_forked_process_leaves_the_files_of_its_parent(tmp_path: Path) -> None:
    with publishing():
        write_all(tmp_path)
        child = os.fork()
        if not child:
            code = 1
            try:
                for temporary in list(module._existing):
                    temporary.remove()
                write_bytes(tmp_path / "of-the-child", b"")  # not a part of the parent's outputs
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert contents(tmp_path) == {**dict.fromkeys(NAMES, b"new"), "of-the-child": b""}


def test_names_that_are_not_utf_8_are_escaped_in_texts(tmp_path: Path) -> None:
    write_text(tmp_path / "results.csv", "sample \udcff\n")
    assert (tmp_path / "results.csv").read_bytes() == b"sample \\udcff\n"
