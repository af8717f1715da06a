"""How long a host may take for what; in one place, so that tests need not wait as long as people do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds, but for the sizes. A host that went silent is called unreachable after `quiet_s` + `probe_s` + `tick_s`,
    which leaves a command some seconds of the 30 that a person is promised."""

    connect_s: float = 10.0  # from the first packet to the accepted key
    refusing_s: float = 15.0  # a host that refuses one more session is asked again for so long
    quiet_s: float = 12.0  # nothing heard for so long: ask whether anybody is there
    probe_s: float = 8.0  # and wait so long for an answer
    tick_s: float = 1.0  # how often the silence is measured
    answer_bytes: int = 64 << 20  # the largest stdout that `run` takes
    stderr_bytes: int = 4 << 20  # of stderr, the last part that is kept


DEFAULT = Limits()
