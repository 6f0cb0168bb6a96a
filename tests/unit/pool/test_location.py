"""Where the socket lies, and who may lie there."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from pallas_evo.errors import UsageError
from pallas_evo.pool.location import Claim, check_length, default_socket


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="pe") as name:  # pytest's own folders can be too long for a socket
        yield Path(name)


def test_the_default_is_the_variable_then_the_runtime_folder_then_the_temporary_one(folder, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("PALLAS_EVO_SOCKET", "here.sock")
    assert default_socket() == Path.cwd() / "here.sock"
    monkeypatch.setenv("PALLAS_EVO_SOCKET", "")
    assert default_socket() is None
    monkeypatch.delenv("PALLAS_EVO_SOCKET")
    assert default_socket() == folder / "pallas_evo" / "judge.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert default_socket() == folder / f"pallas_evo-{os.getuid()}" / "judge.sock"


def test_the_socket_and_its_folder_are_for_nobody_else_and_leave_nothing(folder):
    path = folder / "inner" / "judge.sock"
    claim = Claim(path)
    with claim.listen():
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
        claim.release()
    claim.release()
    assert list(path.parent.iterdir()) == []


def test_a_dead_servers_socket_is_replaced_and_a_living_ones_is_not(folder):
    path = folder / "judge.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    (folder / "judge.sock.lock").touch()
    first = Claim(path)
    with first.listen():
        with pytest.raises(UsageError, match="there already"):
            Claim(path)
        assert path.exists()
        first.release()
    second = Claim(path)
    second.listen().close()
    second.release()


def test_a_later_servers_socket_is_not_taken_away(folder):
    path = folder / "judge.sock"
    claim = Claim(path)
    claim.listen().close()
    path.unlink()
    path.write_text("of somebody else")
    claim.release()
    assert path.exists()


def test_what_is_no_socket_stays(folder):
    (folder / "judge.sock").write_text("precious")
    with pytest.raises(UsageError, match="there is a file"):
        Claim(folder / "judge.sock")
    assert [path.name for path in folder.iterdir()] == ["judge.sock"]


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o777])
def test_a_folder_that_others_can_enter_is_refused(mode, folder):
    folder.chmod(mode)
    with pytest.raises(UsageError, match="mode 0700"):
        Claim(folder / "judge.sock")


def test_a_folder_of_somebody_else_is_refused(folder, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(UsageError, match="yours"):
        Claim(folder / "judge.sock")


def test_a_folder_that_cannot_be_made_is_said(folder):
    (folder / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        Claim(folder / "file" / "judge.sock")


def test_a_path_that_no_socket_can_have_is_refused(folder):
    with pytest.raises(UsageError, match="at most 107 bytes"):
        Claim(folder / ("x" * 100) / "judge.sock")
    check_length(Path("/" + "x" * 106))
    with pytest.raises(UsageError):
        check_length(Path("/" + "\u00e9" * 60))  # bytes count, not characters
