"""The rehearsal cloud: a process that speaks the Cloud TPU API and whose nodes are SSH servers on loopback.

`launch` starts and stops it (and is all that the rest of the product imports); `python -m tpufleet.emulator`
is the process itself.
"""
