"""Every command: help, a wrong input as a sentence, JSON, exit codes, the verdict in the archive before it is out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pallas_evo import paths
from pallas_evo.archive import open_archive
from pallas_evo.cli.app import app, main
from pallas_evo.tasks import load_tasks

RELU = paths.seed_file("L1/relu")
KEYS = {
    "task", "target", "correct", "combined_score", "status", "stage", "reason", "message", "gates", "filters", "sizes",
    "compiled", "ran_on", "compiled_for", "jail", "seeds", "candidate_sha256", "duration_s", "timer", "task_version",
    "text_feedback", "output", "environment", "evaluation_id", "file",
}  # fmt: skip
QUICK = ["--set", "compile.enabled=false", "--set", "judging.small_seeds=2"]


def commands() -> dict[str, typer.main.TyperCommand]:
    """Every command by its words, read off the app itself."""
    found = {}

    def walk(words: str, command) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found[words] = command
            return
        for name, one in inner.items():
            walk(f"{words} {name}".strip(), one)

    walk("", typer.main.get_command(app))
    return found


@pytest.mark.parametrize("words", commands())
def test_every_command_has_help_an_example_and_a_section(words, capsys):
    command = commands()[words]
    assert command.help
    assert f"Example: pallas_evo {words}" in command.help
    assert f"## pallas_evo {words}\n" in (Path(paths.SEEDS).parent / "docs" / "cli.md").read_text()
    assert main([*words.split(), "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "{folder}/missing.py", "--task", "L1/relu"], "there is no such file"),
        (["evaluate", "{folder}", "--task", "L1/relu"], "it is a folder"),
        (["evaluate", "{folder}/binary", "--task", "L1/relu"], "UTF-8"),
        (["evaluate", "{folder}/large.py", "--task", "L1/relu"], "over 1 MB"),
        (["evaluate", "/dev/zero", "--task", "L1/relu"], "regular file"),
        (["evaluate", "{seed}", "--task", "L1/rleu"], "L1/relu"),
        (["evaluate", "{seed}", "--task", "L1/relu", "--set", "judging.small_sedes=1"], "small_sedes"),
        (["evaluate", "{seed}", "--task", "L1/relu", "--set", "judging.small_seeds=many"], "many"),
        (["evaluate", "{seed}", "--task", "L1/relu", "--set", "nonsense"], "KEY=VALUE"),
        (["evaluate", "{seed}", "--task", "L1/relu", "--config", "{folder}/missing.yaml"], "missing.yaml"),
        (["evaluate", "{seed}", "--task", "L1/relu", "--config", "{folder}/bad.yaml"], "bad.yaml"),
        (["evaluate", "{seed}", "--task", "L1/relu", "--archive", "{folder}/binary"], "binary"),
        (["evaluate", "{seed}", "--task", "L1/relu", "--target", "tpu"], "tpu"),
        (["evaluate", "{seed}"], "--task"),
        (["archive", "copy", "{folder}/missing.sqlite", "{folder}/new.sqlite"], "missing.sqlite"),
        (["archive", "upgrade", "{folder}/missing.sqlite"], "missing.sqlite"),
        (["nonsense"], "nonsense"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_callers_mistake_is_a_sentence_and_exit_code_2(arguments, said, tmp_path, capsys):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0\x80" * 100)
    (tmp_path / "large.py").write_text("#" * (1 << 20) + "\n\n")
    (tmp_path / "bad.yaml").write_text("judging: [unclosed\n")
    filled = [argument.format(folder=tmp_path, seed=RELU) for argument in arguments]
    if "evaluate" in filled and "--archive" not in filled:
        filled += ["--archive", str(tmp_path / "archive.sqlite")]
    assert main(filled) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err
    assert out == ""


def test_tasks_lists_all(capsys):
    assert main(["tasks", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [task["id"] for task in listed] == [task.id for task in load_tasks()]
    assert set(listed[0]) == {"id", "level", "category", "inputs", "sizes", "formula", "precision"}
    assert listed[0]["sizes"] == {"small": [[512, 512]], "medium": [[4096, 4096]], "large": [[16384, 16384]]}
    assert main(["tasks"]) == 0
    assert "L3/triangle_update" in capsys.readouterr().out


def test_doctor(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"jail", "gpu", "versions", "timers", "ptx"} <= set(found)
    assert main(["doctor"]) == 0
    assert "jail" in capsys.readouterr().out


def test_several_files_are_judged_stored_and_printed(tmp_path, capsys):
    bad = tmp_path / "bad.py"
    bad.write_text(RELU.read_text().replace("jnp.maximum(x, 0.0)", "x"))
    archive = tmp_path / "archive.sqlite"
    files = [str(RELU), str(bad), str(RELU)]
    assert main(["evaluate", *files, "--task", "L1/relu", "--archive", str(archive), "--json", *QUICK]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"] for line in lines] == ["accepted", "rejected", "accepted"]
    assert all(set(line) == KEYS for line in lines)
    assert [line["file"] for line in lines] == files
    with open_archive(archive) as store:
        for line in lines:
            kept = store.evaluation(line["evaluation_id"])
            assert (kept.status, kept.combined_score) == (line["status"], line["combined_score"])
            assert "small_seeds: 2" in (store.evaluation_config(line["evaluation_id"]) or "")
        assert store.summary().evaluations == 3
        assert store.summary().programs == 2


def test_a_syntax_error_is_a_rejection_with_line_and_caret(tmp_path, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text("def kernel(x)\n    return x\n")
    assert main(["evaluate", str(broken), "--task", "L1/relu", "--archive", str(tmp_path / "a.sqlite")]) == 1
    out = capsys.readouterr().out
    assert "line 1" in out
    assert "^" in out
    assert "Traceback" not in out


def test_our_own_failure_is_exit_3_and_no_score(tmp_path, capsys, monkeypatch):
    from pallas_evo.errors import WorkerFailed
    from pallas_evo.evaluation import Evaluator

    def fail(*_: object, **__: object) -> None:
        raise WorkerFailed("The executor's process ended. Free some memory.")

    monkeypatch.setattr(Evaluator, "evaluate", fail)
    archive = tmp_path / "a.sqlite"
    assert main(["evaluate", str(RELU), "--task", "L1/relu", "--archive", str(archive), "--json"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "Free some memory" in err
    with open_archive(archive) as store:
        assert store.summary().evaluations == 0


def test_a_bug_is_one_line_unless_debugging(tmp_path, capsys, monkeypatch):
    from pallas_evo.evaluation import Evaluator

    monkeypatch.setattr(Evaluator, "evaluate", lambda *_, **__: 1 / 0)
    line = ["evaluate", str(RELU), "--task", "L1/relu", "--archive", str(tmp_path / "a.sqlite")]
    assert main(line) == 3
    assert capsys.readouterr().err.startswith("Internal error: ZeroDivisionError")
    monkeypatch.setenv("PALLAS_EVO_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(line)


def test_hostile_text_does_not_reach_the_terminal(tmp_path, capsys):
    hostile = tmp_path / "hostile.py"
    hostile.write_text(
        RELU.read_text().replace("def kernel(x):", 'def kernel(x):\n    raise ValueError("\\x1b[2J[red]")')
    )
    line = ["evaluate", str(hostile), "--task", "L1/relu", "--archive", str(tmp_path / "a.sqlite"), *QUICK]
    assert main(line) == 1
    assert "\x1b[2J" not in capsys.readouterr().out


def test_version_and_module(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(paths.SEEDS).parent)}
    done = subprocess.run(
        [sys.executable, "-m", "pallas_evo", "--version"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0
    assert done.stdout.startswith("pallas_evo ")
