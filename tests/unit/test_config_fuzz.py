"""Whatever stands in the file: it is a Spec or a ConfigError, never another exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings, strategies as st

from tpufleet.config.load import load
from tpufleet.errors import ConfigError
from tpufleet.model import Spec
from tpufleet.names import shown

VALID = r"""fleet: sherlock
cloud:
  provider: gcp
  project: my-project
  zones: [us-central1-b]
  emulator: {path: [bin], create_seconds: 0.5}
nodes:
  - {name: tpu, count: 2, accelerator: v2-8, spot: true, queued: true, valid_until: 2h, ttl: 8h, labels: {a: b}}
ssh: {key: ~/.ssh/id, jump: me@bastion}
code: {repo: ., ref: main, setup: ["uv venv"]}
jobs:
  gpt:
    workdir: .
    command: [python, "{lr}"]
    grid: {lr: [0.001, 1], seed: [a, no]}
    env: {A: "1"}
    secrets: [KEY]
    artifacts: ["out/**"]
    metrics: {loss: 'loss: ([\d.]+)'}
    zip: {a: [1, 2], b: [x, y]}
    time_limit: 2h
    max_parallel: 3
  points: {command: [x], points: [{a: 1}, {a: 2, b: x}], whole_host: true, stop_on_nan: true}
"""
INVENTORY = """fleet: sherlock
cloud:
  provider: inventory
  hosts:
    - {name: a, address: 192.0.2.7, accelerator: v2-8, user: me, port: 2222, host_key: ssh-ed25519 AAAA}
"""
SNIPPETS = [
    *("[", "]", "{", "}", ":", ": ", "- ", "\n", "\n  ", "\t", '"', "'", "|", ">", "&a ", "*a", "!!int ", "<<: ", "? "),
    *(
        "---\n",
        "...\n",
        "%YAML 9.9\n",
        "%TAG ! x\n",
        "#",
        "~",
        ".nan",
        "-.inf",
        "1e999",
        "0x1",
        "010",
        "1:30",
        "9" * 40,
    ),
    *(
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\ufeff",
        "\\x1b",
        '"\\ud800"',
        '"\\Uffffffff"',
        "(" * 200,
        "a" * 200,
        "-",
        "..",
        "/",
    ),
    *("null", "yes", "2020-01-01", "{lr}", "\r", "\u2028", "é", "𝔘", "=", "@", "`", "2", "-1", "'2'", "str", "[key]"),
]
QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(data: bytes) -> Spec | ConfigError:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tpufleet.yaml"
        path.write_bytes(data)
        try:
            return load(path)
        except ConfigError as error:
            assert str(error.where).startswith(str(path)), "an error says where"
            return error


def is_showable(result: Spec | ConfigError) -> bool:
    """An error's words hold nothing that a terminal would act on, whatever the file held."""
    if isinstance(result, Spec):
        return True
    return all(char == "\n" or char.isprintable() for char in f"{result.message}{result.hint}")


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_a_spec_or_a_config_error(data: bytes) -> None:
    assert is_showable(outcome(data))


@QUICK
@given(st.lists(st.sampled_from([*SNIPPETS, *VALID.splitlines(keepends=True)]), max_size=20).map("".join))
def test_any_pile_of_yaml_is_a_spec_or_a_config_error(text: str) -> None:
    assert is_showable(outcome(text.encode()))


@QUICK
@given(
    st.sampled_from([VALID, INVENTORY]),
    st.lists(
        st.tuples(
            st.integers(0, len(VALID)), st.integers(0, 12), st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=5))
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_a_valid_file_with_pieces_changed_is_a_spec_or_a_config_error(
    text: str, edits: list[tuple[int, int, str]]
) -> None:
    for start, length, piece in edits:
        text = text[:start] + piece + text[start + length :]
    assert is_showable(outcome(text.encode("utf-8", errors="surrogatepass")))


KEYS = ["fleet", "cloud", "nodes", "code", "jobs", "ssh", "name", "command", "env", "grid", "people", "str", "[key]"]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(SNIPPETS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.sampled_from(KEYS),
                st.text(max_size=5),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=15,
)


@QUICK
@given(JSON)
def test_any_tree_is_a_spec_or_a_config_error(tree: object) -> None:
    import yaml

    assert is_showable(outcome(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", errors="surrogatepass")))


@QUICK
@given(st.text())
def test_text_that_is_shown_can_be_shown(text: str) -> None:
    assert shown(text).isprintable()
