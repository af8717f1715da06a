"""Stages for the tests of this folder, kept as long as the judge is content with them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.faults.judge", "tests.faults.table")

from tests.faults.judge import Stage, stage  # noqa: E402 - their assertions are to say what was there


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stage]]:
    """Gives a stage for nodes with these further keys: the one there is, or a new one after a test that failed."""
    kept: dict[str, Stage] = {}
    directory, number = tmp_path_factory.mktemp("stages"), itertools.count()
    with contextlib.ExitStack() as stack:

        def give(pool: str) -> Stage:
            if pool not in kept or not kept[pool].settled:
                kept[pool] = stack.enter_context(stage(Path(directory, str(next(number))), pool))
            return kept[pool]

        yield give
