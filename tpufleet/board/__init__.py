"""The board: a page for all who train, sign-up for those who come, and a page for who invites them.

`signup` decides (pure), `book` remembers, `desk` works with the fleet, `admission` and `poll` are the two threads that
do so for everybody at once; `pages` makes markup, `app` routes, `guard` keeps others out, `serve` runs it all.

A look goes one way: hosts' answers → `fleetlook` (with `look`, `reading`, `happenings`, `writings`, `pace`) → a `scene`
and new points → `feed` (with `history` and `parts`), drawn and encoded once → `live`, to each viewer.
"""
