"""Where files are written to: over files, through links, into pipes, never over folders."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tuner.base.atomic_io import require_writable_file, write_atomically
from tuner.base.errors import InputError


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.csv", tmp_path / "there" / "real.csv"
    link.symlink_to(target)
    for content in ("first", "second"):  # also while it leads nowhere
        write_atomically(link, content)
        assert link.is_symlink()
        assert target.read_text() == content
    assert list((tmp_path / "there").iterdir()) == [target]


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "a,b\n")
    assert os.read(reader, 100) == b"a,b\n"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    """More than a pipe holds."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(pipe, os.O_WRONLY)  # until the other end is open
    os.set_blocking(reader, True)
    written = threading.Thread(target=write_atomically, args=(pipe, b"x" * 1_000_000))
    written.start()
    with os.fdopen(reader, "rb") as file:
        assert file.read(1) == b"x"
        os.close(held)
        assert len(file.read()) == 999_999
    written.join()


def test_a_pipe_without_a_reader_is_an_error_and_no_wait(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="pipe: cannot be written: no process reads it"):
        write_atomically(pipe, "text")
    assert pipe.is_fifo()


def test_a_device_is_written_into_and_stays(tmp_path: Path) -> None:
    """One of our own like /dev/null: a test that fails must not cost the computer a device."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        device.write_text("")
    except PermissionError:
        pytest.skip("devices can be made by root alone")
    write_atomically(device, "text")
    require_writable_file(device, device)
    assert device.is_char_device()


@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_is_written_to_in_order(tmp_path: Path, into: str) -> None:
    """As /dev/stdout leads there, through a link of our own."""
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    program = (
        "import sys; from pathlib import Path; from tuner.base.atomic_io import write_atomically\n"
        "print('before'); write_atomically(Path(sys.argv[1]), 'content\\n'); print('after')\n"
    )
    command = [sys.executable, "-c", program, str(link)]
    if into == "pipe":
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        with (tmp_path / "out").open("w") as file:
            subprocess.run(command, stdout=file, check=True)
        text = (tmp_path / "out").read_text()
    assert text == "before\ncontent\nafter\n"
    assert link.is_symlink()


def test_a_folder_is_refused_and_stays(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        write_atomically(tmp_path, "text")
    with pytest.raises(InputError, match=r"is a folder: give the name of a file"):
        require_writable_file(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_tried_before_the_work(tmp_path: Path) -> None:
    require_writable_file(tmp_path / "new" / "folder" / "x.csv")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("text")
    require_writable_file(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "text"
    with pytest.raises(InputError, match=r"x\.csv: cannot be written: Not a directory"):
        require_writable_file(tmp_path / "file" / "x.csv")
    with pytest.raises(InputError, match=r"/proc/x\.csv: cannot be written"):
        require_writable_file(Path("/proc/x.csv"))


def test_what_is_read_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("text")
    (tmp_path / "link.yaml").symlink_to("study.yaml")
    with pytest.raises(InputError, match=r"link\.yaml is read as well: give another name"):
        require_writable_file(tmp_path / "link.yaml", tmp_path / "absent", tmp_path / "study.yaml")


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "table.json", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A limit on file sizes refuses the write half-way, as a full disk does."""
    path = tmp_path / "table.json"
    write_atomically(path, "old")
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tuner.base.errors import InputError\n"
        "from tuner.base.atomic_io import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_atomically(Path(sys.argv[1]), 'new' * 10_000)\n"
        "except InputError as reason: print(reason)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert "table.json: cannot be written: File too large; nothing was changed" in run.stdout
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.json"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
