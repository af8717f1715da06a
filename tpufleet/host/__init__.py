"""What runs on the TPU hosts: standard library only, Python 3.10 and up, shipped as it is.

`agent` answers one verb per call; `queue` works the host's queue off with nobody connected; `runner` looks after one
attempt of one run. The rules that keep this right under SIGKILL at any moment:

- Whoever holds `control/RUN/lock` may change the run's records. The lock is handed on, never dropped and retaken:
  worker -> supervisor -> the training's processes. A lock that can be taken means nobody is alive any more.
- A chip's lease is a lock handed on the same way, so a living training holds its chip whatever else has died.
- Records are whole or absent (written aside, synced, renamed), and written before what they speak of happens.
"""
