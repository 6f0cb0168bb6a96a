"""A service and its client: what is answered, and that nothing that goes wrong costs or doubles a verdict."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from stand_ins import alive, below, pool, serving, until

from pallas_evo.errors import UsageError
from pallas_evo.paths import SEEDS
from pallas_evo.pool import client, location, protocol
from pallas_evo.pool.server import Server
from pallas_evo.running import gpus

RELU = "L1/relu"
build = protocol.build


@pytest.fixture(autouse=True)
def one_build(monkeypatch):
    """Whoever edits a file of the package while these tests run does not make client and service strangers."""
    monkeypatch.setattr(protocol, "build", lambda: "test")


def request(source="", **more):
    return {"source": source, "task": RELU, "target": "cpu", **more}


@pytest.fixture
def path():
    with tempfile.TemporaryDirectory(prefix="pe") as name:
        yield Path(name) / "judge.sock"


@pytest.fixture
def said():
    return []


@contextmanager
def served(path, said=None, **settings):
    """A service of stand-ins in a thread of this process."""
    with pool(**settings) as judges:
        server = Server(judges, path, say=(said.append if said is not None else None))
        thread = threading.Thread(target=server.serve, kwargs={"signals": False})
        thread.start()
        try:
            until(lambda: client.ask(request(), service=str(path), say=lambda line: None) is not None)
            yield judges
        finally:
            server.stop()
            thread.join(20)
            assert not thread.is_alive()


@contextmanager
def pretending(path, talk):
    """Something that listens where a service would; `talk(connection)` is all it does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def run():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(BrokenPipeError):
                talk(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def connected(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(path))
    reader = protocol.Reader(connection.fileno())
    assert reader.frame(20)["kind"] == "hello"
    return connection, reader


# ---- what is answered


def test_eight_clients_at_once_each_get_their_own_verdict(path):
    with served(path, judges=2), ThreadPoolExecutor(8) as threads:
        sources = [f"# candidate {n}\nsleep 0.01" for n in range(24)]
        records = list(threads.map(lambda source: client.ask(request(source), service=str(path)), sources))
        assert all(record["kind"] == "judged" for record in records)
        assert len({record["evaluation"]["candidate_sha256"] for record in records}) == 24
        status = client.status(str(path))
        assert (status["judged"], status["failures"], status["queued"]) == (25, 0, 0)
        assert status["pid"] == os.getpid()
        assert status["target"] == "cpu"
        assert status["socket"] == str(path)
        assert {"uptime_s", "gpus", "busy", "judges", "dropped", "retries"} <= set(status)


@pytest.mark.parametrize(
    ("source", "more", "kind", "words"),
    [
        ("ours", {}, "failure", "the disk is full"),
        ("die", {}, "failure", "the judge ended"),
        ("", {"task": "L1/reluu"}, "usage", "L1/relu"),
        ("", {"overrides": ["nonsense"]}, "usage", "KEY=VALUE"),
        ("", {"config_text": "nonsense: 1", "config_name": "mine.yaml"}, "usage", "mine.yaml"),
    ],
)
def test_what_is_no_verdict_is_told_with_its_kind(path, source, more, kind, words):
    with served(path):
        record = client.ask(request(source, **more), service=str(path))
        assert (record["kind"], words in record["message"]) == (kind, True), record


def test_text_that_is_hard_to_carry_arrives_as_it_is(path):
    source = "# \u00e9\u4e2d\U0001f600 \x00 \x7f\n" + "#" * (1 << 20)
    with served(path):
        assert client.ask(request(source), service=str(path))["kind"] == "judged"


def test_a_request_with_the_servers_own_default_configuration_finds_its_judge_prepared(path):
    with served(path):
        made = client.ask(request(), service=str(path))["evaluation"]["environment"]["made"]
        assert made == 1


# ---- a client that has to do without


def test_without_a_service_nothing_is_said(path, said):
    assert client.ask(request(), service="off", say=said.append) is None
    for there in (path, path.parent / "missing" / "judge.sock"):
        os.environ[location.VARIABLE] = str(there)
        try:
            assert client.ask(request(), say=said.append) is None
        finally:
            os.environ[location.VARIABLE] = ""
    assert client.ask(request(), say=said.append) is None
    assert said == []


def test_a_service_that_was_named_and_is_not_there_is_one_line(path, said):
    assert client.ask(request(), service=str(path), say=said.append) is None
    assert len(said) == 1
    assert str(path) in said[0]


def test_a_dead_servers_socket_is_no_service(path, said, monkeypatch):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    monkeypatch.setenv(location.VARIABLE, str(path))
    assert client.ask(request(), say=said.append) is None
    assert said == []


def test_a_path_too_long_for_a_socket_is_one_line(path, said):
    assert client.ask(request(), service=str(path.parent / ("x" * 120)), say=said.append) is None
    assert "107 bytes" in said[0]
    with pytest.raises(UsageError, match="107 bytes"):
        client.status(str(path.parent / ("x" * 120)))


def hello(**changed):
    return protocol.pack({**protocol.hello(target="cpu", gpus=[]), **changed})


def after_hello(*answers):
    def talk(connection):
        connection.sendall(hello())
        connection.recv(1 << 16)
        for answer in answers:
            connection.sendall(answer)

    return talk


def only(*pieces):
    def talk(connection):
        for piece in pieces:
            connection.sendall(piece)

    return talk


MADE_UP = {"task": RELU, "candidate_sha256": "0" * 64}


@pytest.mark.parametrize(
    ("talk", "words"),
    [
        (only(), "closed"),
        (only(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "cap"),
        (only(struct.pack("!I", 5) + b"12345"), "no JSON object"),
        (only(struct.pack("!I", 9) + b"[[[[[[[[["), "no JSON"),
        (only(struct.pack("!I", 1 << 31)), "over the cap"),
        (only(hello(kind="goodbye")), "something else"),
        (only(hello(version="0.0.1")), "another version"),
        (only(hello(protocol=0)), "another protocol"),
        (only(hello(build="older")), "start it again"),
        (after_hello(), "closed"),
        (after_hello(b"\0\0"), "closed"),
        (after_hello(protocol.pack({"kind": "refused", "message": "not you"})), "not you"),
        (after_hello(protocol.pack({"kind": "unsuitable", "message": "other GPU"})), "other GPU"),
        (after_hello(protocol.pack({"kind": "judged"})), "no record"),
        (after_hello(protocol.pack({"kind": "failure"})), "no record"),
        (after_hello(protocol.pack({"kind": "judged", "metrics": {}, "evaluation": MADE_UP})), "another candidate"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_service_that_says_anything_else_is_done_without(path, said, talk, words):
    with pretending(path, talk):
        assert client.ask(request(), service=str(path), say=said.append) is None
    assert len(said) == 1
    assert words in said[0]


def test_a_service_that_says_nothing_is_done_without(path, said, monkeypatch):
    monkeypatch.setattr(client, "HELLO_S", 0.1)
    waiting = threading.Event()
    with pretending(path, lambda connection: waiting.wait(20)):
        assert client.ask(request(), service=str(path), say=said.append) is None
        waiting.set()
    assert "said nothing" in said[0]


def test_a_socket_of_another_user_is_done_without(path, said, monkeypatch):
    with pretending(path, only(hello())):
        monkeypatch.setattr(location, "peer_uid", lambda connection: os.getuid() + 1)
        assert client.ask(request(), service=str(path), say=said.append) is None
    assert "who is not you" in said[0]


def test_a_service_that_vanishes_in_the_middle_is_done_without(path, said, tmp_path):
    with serving(path) as server, ThreadPoolExecutor(1) as threads:
        source = f"note {tmp_path / 'began'}\nsleep 60"
        asked = threads.submit(client.ask, request(source), service=str(path), say=said.append)
        until((tmp_path / "began").exists)
        family = below(server.pid)
        server.kill()
        assert asked.result(20) is None
        server.wait()
        assert len(said) == 1
        until(lambda: not any(alive(pid) for pid in family))
    with served(path):  # its socket is still there, and the next service takes its place
        assert client.ask(request(), service=str(path))["kind"] == "judged"


def test_a_service_that_stands_still_is_done_without(path, said, tmp_path):
    with serving(path) as server, ThreadPoolExecutor(1) as threads:
        source = f"note {tmp_path / 'began'}\nsleep 2"
        asked = threads.submit(client.ask, request(source), service=str(path), say=said.append, silence_s=0.5)
        until((tmp_path / "began").exists)
        server.send_signal(signal.SIGSTOP)
        assert asked.result(20) is None
        assert "said nothing for 0.5 s" in said[0]


def test_a_deadline_holds_whatever_the_service_does(path, said):
    waiting = threading.Event()

    def talk(connection):
        connection.sendall(hello())
        while not waiting.wait(0.02):
            connection.sendall(protocol.pack({"kind": "waiting", "ahead": 0}))

    with pretending(path, talk):
        assert client.ask(request(), service=str(path), deadline_s=0.3, say=said.append) is None
        waiting.set()
    assert "in time" in said[0]


def test_who_asks_can_give_up(path, tmp_path):
    class GivenUp(Exception):
        pass

    def look():
        if (tmp_path / "first").exists():
            raise GivenUp

    with served(path) as judges:
        with pytest.raises(GivenUp):
            client.ask(request(f"note {tmp_path / 'first'}\nsleep 0.3"), service=str(path), look=look)
        until(lambda: judges.status()["busy"] == 0)
        assert client.ask(request(), service=str(path))["kind"] == "judged"


@pytest.mark.parametrize(
    ("target", "chosen", "here", "why"),
    [
        ("cpu", None, ("GPU-a",), None),
        ("auto", None, (), None),
        ("auto", "", ("GPU-a",), None),
        ("auto", None, ("GPU-a",), "cuda is wanted"),
        ("cuda", None, ("GPU-a",), "cuda is wanted"),
    ],
)
def test_a_service_on_the_cpu_serves_who_would_judge_on_the_cpu(path, said, monkeypatch, target, chosen, here, why):
    with served(path):
        monkeypatch.setattr(gpus, "_all", lambda: here)
        if chosen is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
        answer = client.ask({**request(), "target": target}, service=str(path), say=said.append)
        assert (answer is None) == (why is not None)
        assert [why in line for line in said] == ([True] if why else [])


@pytest.mark.parametrize(("chosen", "served_so"), [(None, True), ("0", True), ("1", False), ("GPU-b", False)])
def test_a_service_on_one_gpu_does_not_serve_who_chose_another(path, said, monkeypatch, chosen, served_so):
    monkeypatch.setattr(gpus, "_all", lambda: ("GPU-a", "GPU-b"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with served(path) as judges:
        judges.target, judges.gpus = "cuda", ("GPU-a",)
        if chosen is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
        answer = client.ask({**request(), "target": "cuda"}, service=str(path), say=said.append)
        assert (answer is not None) == served_so


# ---- a server and what comes to it


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!I", protocol.REQUEST_BYTES + 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("!I", 4) + b"\xff\xff\xff\xff",
        struct.pack("!I", 200_000) + b"[" * 200_000,
        protocol.pack({}),
        protocol.pack({"op": "judge"}),
        protocol.pack({"op": "judge", **request(), "source": 5}),
        protocol.pack({"op": "judge", **request(), "overrides": "a=b"}),
        protocol.pack({"op": "judge", **request(), "overrides": [1]}),
        protocol.pack({"op": "judge", **request(), "target": "tpu"}),
        protocol.pack({"op": "judge", **request(), "deadline_s": "soon"}),
        protocol.pack({"op": "judge", **request(), "config_text": []}),
    ],
    ids=range(12),
)
def test_garbage_from_a_client_is_refused_and_hurts_nobody(path, frame):
    with served(path) as judges:
        connection, reader = connected(path)
        with connection:
            connection.sendall(frame)
            assert reader.frame(20)["kind"] == "refused"
            with pytest.raises(protocol.ProtocolError):
                reader.frame(20)
        assert client.ask(request(), service=str(path))["kind"] == "judged"
        assert judges.status()["judged"] == 2


def test_a_client_that_stops_in_the_middle_of_a_frame_is_let_go(path, monkeypatch, said):
    from pallas_evo.pool import server

    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    with served(path, said):
        connection, reader = connected(path)
        with connection:
            connection.sendall(struct.pack("!I", 100) + b"{")
            with pytest.raises(protocol.ProtocolError):
                reader.frame(20)
        assert any("let go" in line for line in said)


def test_a_client_of_another_user_is_told_nothing(path, monkeypatch):
    with served(path):
        with monkeypatch.context() as patch:
            patch.setattr(location, "peer_uid", lambda connection: os.getuid() + 1)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                connection.connect(str(path))
                assert connection.recv(100) == b""
        assert client.ask(request(), service=str(path))["kind"] == "judged"


CLIENT = """
from pallas_evo.pool import client, protocol
protocol.build = lambda: "test"
client.ask({{"source": {source!r}, "task": "L1/relu", "target": "cpu"}}, service={path!r})
"""


def test_a_client_killed_in_the_middle_loses_its_place_and_leaves_nothing(path, tmp_path, said):
    environment = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}

    def start(source):
        return subprocess.Popen([sys.executable, "-c", CLIENT.format(source=source, path=str(path))], env=environment)

    with served(path, said) as judges:
        before = below(os.getpid())
        running = start(f"note {tmp_path / 'first'}\nsleep 0.6")
        until((tmp_path / "first").exists)
        queued = start(f"note {tmp_path / 'second'}")
        until(lambda: judges.status()["queued"] == 1)
        for process in (running, queued):
            process.kill()
            process.wait()
        until(lambda: judges.status()["queued"] == 0)
        until(lambda: judges.status()["busy"] == 0)
        assert client.ask(request("# next"), service=str(path))["kind"] == "judged"
        assert not (tmp_path / "second").exists()
        assert judges.status()["dropped"] == 1
        assert sum("it left before" in line for line in said) == 2
        assert below(os.getpid()) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_service_whatever_it_does(path, tmp_path, said, number):
    with serving(path, judges=2) as server, ThreadPoolExecutor(3) as threads:
        sources = [f"note {tmp_path / name}\nsleep 60" for name in ("first", "second", "third")]
        asked = [threads.submit(client.ask, request(one), service=str(path), say=said.append) for one in sources]
        until(lambda: client.status(str(path))["busy"] == 2)
        until(lambda: client.status(str(path))["queued"] == 1)
        family = below(server.pid)
        assert len(family) >= 4
        server.send_signal(number)
        assert [one.result(20) for one in asked] == [None] * 3
        assert server.wait(20) == 0
        assert not any(alive(pid) for pid in family)
        assert list(path.parent.iterdir()) == []


def test_two_services_cannot_be_at_one_socket(path):
    with served(path):
        with pool() as judges, pytest.raises(UsageError, match="there already"):
            Server(judges, path)
        assert client.ask(request(), service=str(path))["kind"] == "judged"


def test_the_client_is_standard_library_only():
    code = (
        "import sys; before = set(sys.modules)\n"
        "from pallas_evo.pool import client\n"
        "client.ask({'source': '', 'task': 'L1/relu', 'target': 'auto'}, service='/missing/judge.sock')\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(names - set(sys.stdlib_module_names) - {'pallas_evo'}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_a_frame_in_pieces_and_two_in_one_are_read():
    inward, outward = os.pipe()
    reader = protocol.Reader(inward)
    frame = protocol.pack({"n": 1})
    assert reader.frame(0.01) is None
    for piece in (frame[:2], frame[2:7], frame[7:] + protocol.pack({"n": 2})):
        assert reader.frame(0.0) is None
        os.write(outward, piece)
    assert [reader.frame(1), reader.frame(1)] == [{"n": 1}, {"n": 2}]
    os.close(outward)
    with pytest.raises(protocol.ProtocolError):
        reader.frame(1)
    os.close(inward)


def test_a_message_over_the_cap_is_not_sent():
    with pytest.raises(protocol.ProtocolError, match="over the cap"):
        protocol.pack({"source": "x" * 100}, 50)


def test_the_build_changes_with_the_code(tmp_path, monkeypatch):
    package = tmp_path / "pallas_evo"
    (package / "pool").mkdir(parents=True)
    module = package / "pool" / "protocol.py"
    module.write_text("x = 1\n")
    monkeypatch.setattr(protocol, "__file__", str(module))
    first = build.__wrapped__()
    assert build.__wrapped__() == first
    module.write_text("x = 12\n")
    assert build.__wrapped__() != first
