"""tpufleet: a fleet of Cloud TPU VMs as one machine full of chips.

This package's face is the command line (`tpufleet --help`), and in a notebook `tpufleet.load`. The file stays free of
imports until that is asked for: parts of the package are shipped to TPU hosts as they are and run there on Python 3.10
with nothing installed.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`load` and what it gives, out of tpufleet/frames.py (PEP 562). Its type stands in `__init__.pyi`."""
    if name in ("load", "Results"):
        import importlib

        return getattr(importlib.import_module("tpufleet.frames"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
