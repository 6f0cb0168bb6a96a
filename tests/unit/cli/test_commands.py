"""Every command: help, a wrong input as a sentence, JSON, exit codes, the verdict in the archive before it is out."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from made_verdicts import verdict

from pallas_evo import paths
from pallas_evo.archive import open_archive
from pallas_evo.cli.app import app, main
from pallas_evo.tasks import load_tasks

ROOT = Path(paths.SEEDS).parent
RELU = paths.seed_file("L1/relu")
RELU_SHA256 = hashlib.sha256(RELU.read_bytes()).hexdigest()
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
def test_every_option_is_in_the_commands_section(words):
    section = section_of(f"pallas_evo {words}")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section))
    options = {name for one in commands()[words].params for name in one.opts if name.startswith("--")} - {"--help"}
    assert options <= named, "an option that docs/cli.md does not name"
    assert named - {"--help"} <= options, "docs/cli.md names an option that is not there"


def test_the_seed_commands_options_are_in_its_section():
    from pallas_evo import seed

    section = section_of("python -m pallas_evo.seed")
    options = {name for one in typer.main.get_command(seed.app).params for name in one.opts} - {"--help"}
    assert options == set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section))


def section_of(command: str) -> str:
    """A command's section of docs/cli.md; empty where there is none."""
    text = (ROOT / "docs" / "cli.md").read_text()
    return text.partition(f"## {command}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("words", commands())
def test_every_command_has_help_an_example_and_a_section(words, capsys):
    command = commands()[words]
    assert command.help
    assert f"Example: pallas_evo {words}" in command.help
    assert f"## pallas_evo {words}\n" in (ROOT / "docs" / "cli.md").read_text()
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
        (["evaluate", "", "--task", "L1/relu"], "name is empty"),
        (["evaluate", "{seed}", "{folder}/missing.py", "--task", "L1/relu"], "missing.py: there is no such file"),
        (["evaluate", "--task", "L1/relu"], "FILE"),
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
    assert {"jail", "gpu", "versions", "timers", "ptx", "landlock_abi", "cores", "memory_gb", "abilities"} <= set(found)
    assert found["versions"]["jax"]
    assert all(bool(one["why"]) != one["works"] for one in found["abilities"])
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert found["jail"]["level"] in out
    for one in found["abilities"]:
        assert f"{'will run' if one['works'] else 'will not'}  {one['what']}" in out


def test_doctor_measures_only_where_there_is_a_gpu(monkeypatch, capsys):
    from pallas_evo import evaluation
    from pallas_evo.cli import doctor

    made = SimpleNamespace(gb_s=4301.0, samples_us=(1.0,), bytes=1 << 30, device="NVIDIA H200", timer="cupti")
    found = doctor.examine()
    found["gpu"] = {"present": False, "jax_plugin": None, "architecture": None, "driver": None}
    monkeypatch.setattr(doctor, "examine", lambda: found)
    assert main(["doctor", "--measure"]) == 2
    assert "needs an NVIDIA GPU" in capsys.readouterr().err
    found["gpu"] = {"present": True, "jax_plugin": "jax-cuda13-plugin", "architecture": "sm_90", "driver": "580"}
    monkeypatch.setattr(evaluation, "copy_bandwidth", lambda config: made, raising=False)
    assert main(["doctor", "--measure"]) == 0
    assert "4,301 GB/s of the datasheet's 4,800" in capsys.readouterr().out
    assert main(["doctor", "--measure", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bandwidth"]["measured_gb_s"] == 4301.0


@pytest.mark.parametrize(
    ("changed", "what", "why"),
    [
        ({"jail": {"level": "none", "why": "bwrap is not installed"}}, "--target cpu", "bwrap is not installed"),
        ({"jail": {"level": "none", "why": "bwrap is not installed"}}, "evolve", "--allow-unjailed"),
        ({"gpu": {"present": False, "jax_plugin": None}}, "--target cuda", "no NVIDIA GPU"),
        ({"gpu": {"present": True, "jax_plugin": None}}, "--target cuda", "pip install jax-cuda13-plugin"),
        ({"ptx": False}, "ptxas", "pallas-evo[ptx]"),
        ({"versions": {"shinka-evolve": None}}, "evolve", "not installed"),
    ],
)
def test_doctor_says_what_will_not_run_and_why(changed, what, why):
    from pallas_evo.cli.doctor import abilities

    able = {
        "jail": {"level": "landlock+seccomp", "why": ""},
        "gpu": {"present": True, "jax_plugin": "jax-cuda13-plugin"},
        "ptx": True,
        "versions": {"shinka-evolve": "0.0.7"},
    }
    assert all(one["works"] for one in abilities(able))
    said = {one["what"]: one for one in abilities({**able, **changed}) if not one["works"]}
    (found,) = [one for name, one in said.items() if what in name]
    assert why in found["why"]


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


def test_texts_are_printed_where_asked_for_and_kept_anyway(tmp_path, capsys):
    archive = tmp_path / "archive.sqlite"
    arguments = ["evaluate", str(RELU), "--task", "L1/relu", "--archive", str(archive), "--json", "--texts", *QUICK]
    assert main([*arguments, "--service", "off"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert set(line) == KEYS | {"texts", "texts_size"}
    assert set(line["texts"]) == {"jaxpr", "stablehlo", "triton_ir"}
    with open_archive(archive) as store:
        assert {one.kind: one.text for one in store.texts([line["evaluation_id"]])[line["evaluation_id"]]} == line[
            "texts"
        ]


def test_an_elite_is_judged_twice_and_a_refused_candidate_once(tmp_path, capsys):
    bad = tmp_path / "bad.py"
    bad.write_text("def kernel(x):\n    return x\n")
    options = ["--task", "L1/relu", "--archive", str(tmp_path / "a.sqlite"), "--json", "--elite", "--target", "cpu"]
    assert main(["evaluate", str(RELU), str(bad), *options, *QUICK, "--service", "off"]) == 1
    good, refused = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert good["environment"]["elite"] == {"scores": [1.0, 1.0], "sanitizer": None, "sanitizer_failed": None}
    assert "elite" not in refused["environment"]


def test_the_verdict_is_in_the_archive_before_it_is_printed(tmp_path, monkeypatch):
    from pallas_evo.cli import rendering
    from pallas_evo.evaluation import Evaluator

    archive = tmp_path / "a.sqlite"
    seen = []

    def look(name: str, _: object) -> None:
        with open_archive(archive) as store:
            seen.append((name, store.summary().evaluations))

    monkeypatch.setattr(Evaluator, "evaluate", lambda *_, **__: verdict(candidate_sha256=RELU_SHA256))
    monkeypatch.setattr(rendering, "print_evaluation", look)
    names = [str(RELU), str(RELU)]
    assert main(["evaluate", *names, "--task", "L1/relu", "--archive", str(archive)]) == 1
    assert seen == [(names[0], 1), (names[1], 2)]


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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_machine_that_refuses_is_exit_3_and_no_bug(number, tmp_path, capsys, monkeypatch):
    from pallas_evo.evaluation import Evaluator

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/somewhere")

    monkeypatch.setattr(Evaluator, "evaluate", fail)
    assert main(["evaluate", str(RELU), "--task", "L1/relu", "--archive", str(tmp_path / "a.sqlite")]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"/somewhere: {os.strerror(number)}. There is no score")
    assert "report" not in err


def test_what_was_judged_before_a_failure_stays(tmp_path, capsys, monkeypatch):
    from pallas_evo.errors import WorkerFailed
    from pallas_evo.evaluation import Evaluator

    answers = iter([verdict(candidate_sha256=RELU_SHA256), WorkerFailed("The executor's process ended.")])

    def answer(*_: object, **__: object) -> object:
        if isinstance(one := next(answers), Exception):
            raise one
        return one

    monkeypatch.setattr(Evaluator, "evaluate", answer)
    line = ["evaluate", str(RELU), str(RELU), str(RELU), "--task", "L1/relu", "--json"]
    assert main([*line, "--archive", str(tmp_path / "a.sqlite")]) == 3
    assert len(capsys.readouterr().out.splitlines()) == 1
    with open_archive(tmp_path / "a.sqlite") as store:
        assert store.summary().evaluations == 1


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
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pallas_evo", "--version"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0
    assert done.stdout.startswith("pallas_evo ")


def run(arguments, **more):
    """One command in a process of its own, as a shell would start it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more.pop("environment", {})}
    return subprocess.run(
        [sys.executable, "-m", "pallas_evo", *arguments], text=True, stderr=subprocess.PIPE, env=environment, **more
    )


@pytest.mark.parametrize("arguments", [["tasks"], ["tasks", "--json"], ["--help"], ["evaluate", "--help"]])
def test_what_only_tells_loads_no_jax(arguments, tmp_path):
    code = (
        f"import sys; from pallas_evo.cli.app import main; code = main({arguments!r}); "
        "print(*sorted({'jax', 'jaxlib', 'shinka', 'triton'} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert done.stdout


def test_a_full_disk_under_stdout_is_a_sentence(tmp_path):
    with open("/dev/full", "w") as full:
        done = run(["tasks"], stdout=full, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("No space left on device.")
    assert "Traceback" not in done.stderr


def test_a_verdict_is_printed_on_a_terminal_that_has_no_ticks(tmp_path):
    (tmp_path / "br\u00f6ken.py").write_text("def kernel(x)\n    return x\n")
    line = ["evaluate", "br\u00f6ken.py", "--task", "L1/relu", "--archive", "a.sqlite"]
    done = run(line, stdout=subprocess.PIPE, cwd=tmp_path, environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert done.stdout.startswith("br?ken.py: rejected")
    assert " -  contract" in done.stdout


def test_an_interrupted_evaluation_ends_with_130_and_leaves_no_process(tmp_path):
    endless = ROOT / "tests" / "attacks" / "corpus" / "endless_in_trace.py"
    line = ["evaluate", str(endless), "--task", "L1/relu", "--archive", str(tmp_path / "a.sqlite")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    started = subprocess.Popen(
        [sys.executable, "-m", "pallas_evo", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not (children := descendants(started.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert children
        time.sleep(0.5)
        children |= descendants(started.pid)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
    finally:
        started.kill()
    assert (started.returncode, out) == (130, "")
    assert "Traceback" not in err
    deadline = time.monotonic() + 5
    while (left := {pid for pid in children if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def descendants(pid: int) -> set[int]:
    """All processes below one, by /proc."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
