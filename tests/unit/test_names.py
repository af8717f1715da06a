"""Names and addresses: what each class takes, and that hostile text is never one."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tpufleet.names import (
    FleetName,
    GitRef,
    HostName,
    JobName,
    Name,
    NodeName,
    ParamName,
    ProjectId,
    RepoUrl,
    RunId,
    UserName,
    Zone,
    shown,
    slug,
)

CLASSES = [FleetName, NodeName, HostName, JobName, RunId, ParamName, UserName, Zone, ProjectId, GitRef, RepoUrl]
GOOD = [
    (FleetName, "a", "sherlock-2", "a" * 40),
    (NodeName, "tpu-0", "a" * 60),
    (HostName, "tpu-0-w0", "tpu-w12"),
    (JobName, "gpt", "gpt_jax-2"),
    (RunId, "gpt-lr0.001-seed0", "gpt-lr1e-05", "0"),
    (ParamName, "lr", "_x", "WANDB_API_KEY"),
    (UserName, "operator", "_svc", "ada-l", "rooted"),
    (Zone, "us-central1-b", "europe-west4-a", "asia-northeast1-c"),
    (ProjectId, "my-project", "example.com:my-project"),
    (GitRef, "main", "v1.0", "feature/x", "a" * 40),
    (RepoUrl, "https://github.com/me/it", "https://h:8443/it.git", "ssh://git@h/it", "git@github.com:me/it.git"),
]
BAD = [
    (FleetName, "", "A", "1a", "a-", "a_b", "a" * 41),
    (NodeName, "", "Tpu", "tpu.0", "a" * 61),
    (HostName, "tpu-0", "tpu-0-w", "tpu-0-w01", "-w0", "tpu-0-w0 ", "tpu-w1٢"),
    (JobName, "", "Gpt", "a/b", "..", "a" * 41),
    (RunId, "", ".hidden", "..", "a/b", "A", "a" * 129),
    (ParamName, "", "1a", "a-b", "a b"),
    (UserName, "", "root", "nobody", "ubuntu", "Ada", "-x", "a" * 33, "a b"),
    (Zone, "us", "us-central1", "us-central1-bb", "US-central1-b", "us-central١-b"),
    (ProjectId, "short", "My-project", "a" * 31, "project-"),
    (GitRef, "", "-x", "--upload-pack=x", "a..b", "a@{1}", "a b", "a:b", "a~1", "/a"),
    (RepoUrl, "http://h/x", "ext::sh -c ls", "file:///x", "--upload-pack=x", "https://user:pass@h/x", "git@-h:x", "."),
]
HOSTILE = ["x\n", "\nx", "x\0", "x;ls", "$(x)", "`x`", "x y", "x'", 'x"', "x\x1b[2J", "x\u202e", "х", "ı", "x\r", "٣"]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, *texts in GOOD for text in texts])
def test_what_is_meant_is_taken_as_it_is(kind: type[Name], text: str) -> None:
    assert kind(text) == text
    assert isinstance(kind(text), str)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, *texts in BAD for text in texts])
def test_what_is_not_a_name_is_refused_with_a_sentence(kind: type[Name], text: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        kind(text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("suffix", HOSTILE)
def test_no_name_holds_anything_that_a_shell_or_a_terminal_acts_on(kind: type[Name], suffix: str) -> None:
    good = {kind: texts[0] for kind, *texts in GOOD}[kind]
    for text in (suffix, good + suffix, suffix + good):
        with pytest.raises(ValueError, match="must be"):
            kind(text)


@pytest.mark.parametrize("value", [None, 1, True, ["x"], b"x"])
def test_a_name_is_text(value: object) -> None:
    with pytest.raises(ValueError, match="must be text, not"):
        FleetName(value)


@given(st.text(max_size=80))
def test_any_text_is_a_plain_ascii_name_or_refused(text: str) -> None:
    for kind in (FleetName, NodeName, HostName, JobName, RunId, ParamName, UserName, Zone, ProjectId):
        try:
            name = kind(text)
        except ValueError:
            continue
        assert name.isascii()
        assert name not in (".", "..")
        assert not set(name) & set("/\\ \n\t'\"$`;&|<>*?[]{}()!#~")


@given(st.text(), st.integers(10, 80))
def test_text_that_is_shown_is_short_and_printable(text: str, limit: int) -> None:
    assert shown(text, limit).isprintable()
    assert len(shown("x" * 200, limit)) == limit + 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.001, "0.001"),
        (1e-5, "1e-05"),
        (3, "3"),
        (True, "true"),
        ("Two Words", "two-words"),
        ("../x", "..-x"),
        ("é", ""),
    ],
)
def test_a_value_becomes_a_part_of_a_run_id(value: object, text: str) -> None:
    assert slug(value) == text
