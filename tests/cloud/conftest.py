from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tpufleet.cloud.retry import Patience, Time
from tpufleet.cloud.tpu_api import Access, TpuCloud
from tpufleet.cloud.transport import Anonymous, Transport

from .google import Google, serving

PROJECT = "p-1234"
MEMBER = "user:me@example.com"


@dataclass
class Steps:
    """A clock that only a sleep moves; `slept` are its pauses."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def time(self) -> Time:
        return Time(lambda: self.now, self.sleep, lambda: 0.5)


@pytest.fixture
def google() -> Iterator[Google]:
    with serving() as server:
        yield server


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def cloud(google: Google, steps: Steps) -> Iterator[TpuCloud]:
    """tpufleet's own client of the small Google, by a clock that only its pauses move."""

    def access() -> Access:
        return Access(Transport(Anonymous(), google.url, direct=True), MEMBER)

    cloud = TpuCloud(PROJECT, access, ssh_port=22, patience=Patience(100, 30), at=steps.time)
    yield cloud
    cloud.close()
