"""tpufleet: a fleet of Cloud TPU VMs as one machine full of chips.

This package's face is the command line (`tpufleet --help`). The file stays free of imports: parts of the
package are shipped to TPU hosts as they are and run there on Python 3.10 with nothing installed.
"""

__version__ = "0.1.0"
