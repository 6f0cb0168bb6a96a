"""Budgets, task folders and the task files for Hydra, held against the tasks and against ShinkaEvolve's form."""

from __future__ import annotations

import pytest
import yaml

from pallas_evo.errors import ConfigError, UsageError
from pallas_evo.evolution import rundir
from pallas_evo.evolution.prompt import system_message
from pallas_evo.evolution.rundir import RunSettings, read_settings, write_settings
from pallas_evo.evolution.taskdir import FILES, write_task_dir
from pallas_evo.paths import CONFIGS
from pallas_evo.tasks import get_task, load_tasks


@pytest.mark.parametrize("name", ["small", "medium", "large"])
def test_a_budget_is_settings_of_a_run(name):
    settings = read_settings(CONFIGS / "shinka" / f"{name}.yaml", task="L1/relu")
    assert settings.generations >= 12


def test_settings_come_back_as_they_were_written(tmp_path):
    settings = RunSettings(task="L1/relu", generations=3, run_id="r", temperatures=(0.1,))
    write_settings(tmp_path, settings)
    assert read_settings(tmp_path / rundir.SETTINGS) == settings


def test_an_unknown_setting_is_named(tmp_path):
    (tmp_path / "b.yaml").write_text("generation: 3\n")
    with pytest.raises(ConfigError, match="generation is no setting"):
        read_settings(tmp_path / "b.yaml", task="L1/relu")


def test_hydra_has_every_task_and_no_other():
    files = {file.stem: yaml.safe_load(file.read_text()) for file in (CONFIGS / "shinka" / "task").glob("*.yaml")}
    assert {content["job_config"]["extra_cmd_args"]["task"] for content in files.values()} == {
        task.id for task in load_tasks()
    }
    for name, content in files.items():
        task = content["job_config"]["extra_cmd_args"]["task"]
        assert name == task.replace("/", "_")
        assert content["evo_config"]["init_program_path"] == f"${{pallas_evo_seed:{task}}}"


@pytest.mark.parametrize("task", load_tasks(), ids=lambda task: task.id)
def test_the_prompt_says_formula_shapes_device_and_score(task):
    said = system_message(task, device="NVIDIA H200")
    assert task.formula in said
    assert all(spec.name in said for spec in task.inputs)
    assert "4,800 GB/s" in said
    assert "Roofline at medium" in said
    assert "```" not in said
    assert "not timed" in system_message(task, device=None)


def test_a_task_folder_holds_three_files_and_is_never_overwritten(tmp_path):
    made = write_task_dir(get_task("L1/softmax"), tmp_path / "t", target="cpu")
    assert sorted(path.name for path in made.iterdir()) == sorted(FILES)
    compile((made / "evaluate.py").read_text(), "evaluate.py", "exec")
    assert set(yaml.safe_load((made / "shinka.yaml").read_text())) <= {
        "evo", "db", "job", "max_evaluation_jobs", "max_proposal_jobs",
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"without initial\.py"):
        write_task_dir(get_task("L1/softmax"), made)


def make(folder, stored, there, failed=()):
    import sqlite3

    with sqlite3.connect(folder / rundir.DATABASE) as connection:
        connection.execute("CREATE TABLE programs (generation INTEGER)")
        connection.executemany("INSERT INTO programs VALUES (?)", [(number,) for number in stored])
    for number in there:
        (folder / f"gen_{number}").mkdir()
        if number in failed:
            (folder / f"gen_{number}" / "failure.json").write_text("{}")


def test_what_a_killed_run_left_half_made_is_removed_and_counted(tmp_path):
    make(tmp_path, stored=[0, 1, 2, 5], there=[0, 1, 2, 3, 4, 5, 6], failed=[4])
    assert rundir.clear_unfinished(tmp_path) == 1  # generation 3; 4 failed by itself, 6 will have its number again
    assert sorted(path.name for path in tmp_path.glob("gen_*")) == ["gen_0", "gen_1", "gen_2", "gen_4", "gen_5"]
    assert rundir.clear_unfinished(tmp_path) == 1
