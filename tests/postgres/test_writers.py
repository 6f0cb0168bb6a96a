"""Many writers at once and a server that restarts under them: what returned is there once, whatever came between."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from archive_samples import CHILD, PARENT, TASK, evaluation
from pg_server import PASSWORD, Server
from sqlalchemy import func, select

from pallas_evo.archive import Archive, new_id, open_archive, patience, schema
from pallas_evo.errors import ArchiveError, PallasEvoError

WRITERS, ROUNDS = 8, 25

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from archive_samples import TASK, evaluation
from pallas_evo.archive import new_id, open_archive
from pallas_evo.errors import PallasEvoError
url, _, me, rounds = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
try:
    with open_archive(url) as archive:
        archive.add_tasks([TASK])
        run = archive.add_run("evolve", run_id="evolve-" + "7" * 32, task=TASK.id, environment={"of": "all"})
        for number in range(int(rounds)):
            # Every writer adds this one, as what it was told that it is; the first adds it, the others find it.
            origin = "candidate" if int(me) % 2 else "mutation"
            shared = f"SHARED = {number}\\n"
            program = archive.add_program(TASK.id, shared, origin=origin, run_id=run.id, generation=number)
            news = evaluation(shared, environment={"shared": number % 3}, texts={"jaxpr": shared, "ptx_sm_80": "one"})
            print(archive.add_evaluation(program, news, run_id=run.id, config_yaml=f"a: {number % 5}\\n"), flush=True)
            own, stored = f"OWN = {me}, {number}\\n", new_id()
            def keep():
                program = archive.add_program(TASK.id, own, origin="candidate")
                texts = {"ptx_sm_80": shared, "jaxpr": "one"}
                return archive.add_evaluation(program, evaluation(own, texts=texts), evaluation_id=stored)
            print(archive.together(keep), flush=True)
except PallasEvoError as error:
    sys.stderr.write(f"{error}\\n")
    sys.exit(error.exit_code)
"""


def samples_folder() -> str:
    import archive_samples

    return str(Path(archive_samples.__file__).parent)


def start(url: str, rounds: int, said: queue.Queue[str], writers: int = WRITERS) -> list[subprocess.Popen[str]]:
    """Writers that have imported all and begin together; what each acknowledges goes into the queue."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, samples_folder(), str(number), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]

    def listen(child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            said.put(line.strip())

    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        threading.Thread(target=listen, args=(child,), daemon=True).start()
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    return children


def ended(children: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Exit code and last words of each."""
    found = []
    for child in children:
        child.wait(timeout=120)
        assert child.stderr is not None
        found.append((child.returncode, child.stderr.read()))
    return found


def drain(said: queue.Queue[str]) -> list[str]:
    lines = []
    while not said.empty():
        lines.append(said.get())
    return lines


def count(archive: Archive, table: str) -> int:
    with archive._reading() as connection:
        return connection.execute(select(func.count()).select_from(schema.metadata.tables[table])).scalar_one()


@pytest.mark.slow
def test_eight_writers_create_and_fill_an_archive_while_the_server_restarts_twice(server: Server, url: str):
    said: queue.Queue[str] = queue.Queue()
    children = start(url, ROUNDS, said)
    total = WRITERS * ROUNDS * 2
    acknowledged = []
    for after, mode in ((total // 6, "fast"), (total // 2, "immediate")):
        while len(acknowledged) < after:
            acknowledged.append(said.get(timeout=60))
        server.restart(mode)
        acknowledged += drain(said)
        assert len(acknowledged) < total, "all was written before the restart"
    assert ended(children) == [(0, "")] * WRITERS
    while len(acknowledged) < total:
        acknowledged.append(said.get(timeout=10))
    with open_archive(url, read_only=True) as archive:
        stored = [record.id for record in archive.evaluations()]
        assert sorted(stored) == sorted(acknowledged)
        assert len(set(stored)) == total
        summary = archive.summary()
        assert (summary.programs, summary.runs) == (ROUNDS + WRITERS * ROUNDS, 1)
        assert summary.timing_samples == total * 3
        assert {p.origin for p in archive.programs() if p.source.startswith("SHARED")} == {"mutation"}
        assert len(archive.programs(run_id="evolve-" + "7" * 32)) == ROUNDS
        assert count(archive, "texts") == ROUNDS + 1
        assert count(archive, "evaluation_texts") == count(archive, "evaluations") * 2
        for record in archive.evaluations():  # each whole
            assert archive.evaluation(record.id).sizes == evaluation().sizes


def test_writers_end_with_a_sentence_where_the_server_stays_away(server: Server, url: str, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE_S", 1.0)
    with open_archive(url) as archive:
        archive.add_tasks([TASK])
        server.stop("immediate")
        with pytest.raises(PallasEvoError, match=r"did not do its part for 1 s .*run again") as failure:
            archive.add_program(TASK.id, PARENT, origin="seed")
        assert failure.value.exit_code == 3
        assert PASSWORD not in str(failure.value)
        with pytest.raises(PallasEvoError, match="did not do its part"):
            archive.summary()
        with pytest.raises(ArchiveError, match="cannot be reached"):  # opening one does not wait: the URL may be wrong
            open_archive(url)
        server.start()
        archive.add_program(TASK.id, PARENT, origin="seed")
        assert archive.summary().programs == 1


def test_a_server_that_is_starting_is_waited_for_by_who_opens(monkeypatch):
    from sqlalchemy.exc import OperationalError

    class Refused(Exception):
        pgconn = object()

    tries = iter(["FATAL: the database system is starting up", "FATAL: sorry, too many clients already", None])

    def work() -> str:
        said = next(tries)
        if said is not None:
            raise OperationalError(None, None, Refused(said))
        return "in"

    assert patience.patient("name", work, opened=False) == "in"


def broken_commit(archive: Archive, monkeypatch, *, arrives: bool) -> None:
    """The next commit's connection dies, before or after the server did it."""
    import psycopg

    dialect = archive._engine.dialect
    real, left = dialect.do_commit, [1]

    def do_commit(connection) -> None:
        if not left:
            return real(connection)
        left.pop()
        if arrives:
            real(connection)
        connection.driver_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(dialect, "do_commit", do_commit)


@pytest.mark.parametrize("arrives", [True, False], ids=["commit arrived", "commit did not arrive"])
def test_a_commit_whose_answer_was_lost_counts_once(url: str, monkeypatch, arrives):
    with open_archive(url) as archive:
        archive.add_tasks([TASK])
        broken_commit(archive, monkeypatch, arrives=arrives)
        program = archive.add_program(TASK.id, PARENT, origin="seed")
        broken_commit(archive, monkeypatch, arrives=arrives)
        one = archive.add_evaluation(program, evaluation())
        stored = new_id()
        broken_commit(archive, monkeypatch, arrives=arrives)
        other = archive.together(lambda: archive.add_evaluation(program, evaluation(), evaluation_id=stored))
        broken_commit(archive, monkeypatch, arrives=arrives)
        run = archive.add_run("evolve", task=TASK.id)
        broken_commit(archive, monkeypatch, arrives=arrives)
        archive.add_finding(program, "race", "two programs", environment={})
        assert sorted(record.id for record in archive.evaluations()) == sorted([one, other])
        assert archive.evaluation(one) == evaluation()
        assert [record.id for record in archive.runs()] == [run.id]
        assert (archive.summary().programs, len(archive.findings())) == (1, 1)


def test_a_batch_that_lost_its_connection_says_so_and_stores_nothing(server: Server, url: str):
    with open_archive(url) as archive:
        archive.add_tasks([TASK])

        def lose() -> None:
            with archive.batch():
                archive.add_program(TASK.id, PARENT, origin="seed")
                server.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pallas_evo'"
                )
                archive.add_program(TASK.id, CHILD, origin="seed")

        with pytest.raises(PallasEvoError, match=r"connection to the database was lost.*not stored") as failure:
            lose()
        assert failure.value.exit_code == 3
        assert archive.summary().programs == 0


def test_transactions_in_each_others_way_are_done_again(url: str):
    """Two that add the same programs in opposite order wait for each other until the server ends one."""
    meet = threading.Barrier(2)
    with open_archive(url) as archive:
        archive.add_tasks([TASK])
        tries: list[str] = []

        def add(sources: list[str]) -> None:
            archive.add_program(TASK.id, sources[0], origin="seed")
            tries.append(sources[0])
            if len(tries) <= 2:
                meet.wait(timeout=30)
            archive.add_program(TASK.id, sources[1], origin="seed")

        orders = ([PARENT, CHILD], [CHILD, PARENT])
        threads = [threading.Thread(target=archive.together, args=(lambda s=s: add(s),)) for s in orders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert len(tries) > 2, "nothing was done again"
        assert archive.summary().programs == 2


def test_more_writers_than_connections_take_turns(server: Server):
    """A server that has no connection left is tried again, by those who open and by those at work."""
    name = server.database()
    with open_archive(server.url(name)) as archive:
        archive.add_tasks([TASK])
    server.sql(
        "CREATE ROLE few LOGIN PASSWORD '" + PASSWORD + "' CONNECTION LIMIT 2",
        f"GRANT ALL ON DATABASE {name} TO few",
    )
    server.sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO few", database=name)
    said: queue.Queue[str] = queue.Queue()
    children = start(server.url(name, user="few"), 2, said, writers=4)
    assert ended(children) == [(0, "")] * 4
    with open_archive(server.url(name)) as archive:
        assert archive.summary().evaluations == 4 * 2 * 2
