"""Configuration: the file of defaults is the schema, unknown keys are refused by name, overrides win in order."""

from __future__ import annotations

import pytest

from pallas_evo import paths
from pallas_evo.config import Config, load_config, to_dict, to_yaml
from pallas_evo.errors import ConfigError


def test_default_yaml_is_the_schema():
    assert load_config(paths.CONFIGS / "default.yaml") == Config()


def test_default_yaml_explains_every_key():
    for line in (paths.CONFIGS / "default.yaml").read_text().splitlines():
        assert not line.strip() or line.startswith("#") or "  # " in line, line


def test_default_yaml_names_every_key():
    from omegaconf import OmegaConf

    def keys(node, at=""):
        return {one for key, value in node.items() for one in [f"{at}{key}"]} | {
            one for key, value in node.items() if isinstance(value, dict) for one in keys(value, f"{at}{key}.")
        }

    written = OmegaConf.to_container(OmegaConf.load(paths.CONFIGS / "default.yaml"))
    assert keys(written) == keys(to_dict(Config()))


@pytest.mark.parametrize("file", sorted((paths.CONFIGS / "eval").glob("*.yaml")), ids=lambda file: file.name)
def test_every_shipped_file_fits(file):
    assert load_config(file) != Config() or "a100" in file.name


def test_a_file_overrides_defaults_and_set_overrides_a_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("judging:\n  small_seeds: 7\n  variant_seeds: 2\n")
    found = load_config(file, ["judging.variant_seeds=4", "timer.name=wall", "judging.timed_sizes=[large]"])
    assert (found.judging.small_seeds, found.judging.variant_seeds) == (7, 4)
    assert found.timer.name == "wall"
    assert found.judging.timed_sizes == ["large"]
    assert found.trace == Config().trace


def test_what_was_resolved_round_trips(tmp_path):
    file = tmp_path / "resolved.yaml"
    resolved = load_config(overrides=["judging.small_seeds=9"])
    file.write_text(to_yaml(resolved))
    assert load_config(file) == resolved


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("judgin:\n  small_seeds: 1\n", "judgin"),
        ("judging:\n  seeds: 1\n", "seeds"),
        ("judging:\n  small_seeds: three\n", "three"),
        ("judging: 3\n", "judging"),
        ("- a\n- b\n", "list"),
        ("judging: {small_seeds: 1\n", "yaml"),
        ("\0", "yaml"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(text, said, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert said in str(caught.value).lower()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["judging", "=1", "judging.small_seeds", "trace.deadline_s=soon", "a.b=1"])
def test_an_override_that_does_not_fit_is_refused(override):
    with pytest.raises(ConfigError):
        load_config(overrides=[override])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="missing"):
        load_config(tmp_path / "missing.yaml")
