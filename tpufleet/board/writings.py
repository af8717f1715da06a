"""The completions that are shown: the newest that arrived first, and of no run so many that others have no room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tpufleet.board.scene import Piece

MOST_PIECES = 60
MOST_OF_A_RUN = 5

_Key = tuple[str | None, str]


@dataclass
class Writings:
    """Completions by person and run, each with the number of the look at which it was new."""

    _look: int = 0
    _pieces: dict[_Key, tuple[Piece, ...]] = field(default_factory=dict[_Key, tuple[Piece, ...]])
    _arrived: dict[Piece, int] = field(default_factory=dict[Piece, int])

    def add(self, run: str, pieces: Sequence[Piece], *, anew: bool = False) -> None:
        """What a run of the fleet wrote since the last look, the oldest first."""
        before = () if anew else self._pieces.get((None, run), ())
        self._pieces[None, run] = (*before, *pieces)[-MOST_OF_A_RUN:]

    def pieces(self, runs: Iterable[str], shown: Iterable[Piece]) -> tuple[Piece, ...]:
        """All to be shown of the fleet's `runs`, and what people show now: `shown` is all of theirs, oldest first."""
        kept: dict[_Key, tuple[Piece, ...]] = {(None, run): self._pieces.get((None, run), ()) for run in runs}
        for piece in shown:
            key = piece.person, piece.run
            kept[key] = (*kept.get(key, ()), piece)[-MOST_OF_A_RUN:]
        self._look += 1
        self._pieces = {key: pieces for key, pieces in kept.items() if key[0] is None and pieces}
        self._arrived = {piece: self._arrived.get(piece, self._look) for pieces in kept.values() for piece in pieces}
        return tuple(sorted(self._arrived, key=self._order, reverse=True)[:MOST_PIECES])

    def _order(self, piece: Piece) -> tuple[int, str, int, str]:
        return self._arrived[piece], piece.started, -1 if piece.step is None else piece.step, piece.run
