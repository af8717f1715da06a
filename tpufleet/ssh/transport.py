"""paramiko's transport with one fault mended: nothing is sent on a channel after its close."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator

import paramiko


class OrderlyTransport(paramiko.Transport):
    """A transport on which threads send for their channels inside `acting_for`.

    paramiko makes a channel's message first and sends it later. Meanwhile its own thread may answer the server's
    close, and then data or an end of file goes out for a channel that is no more; OpenSSH ends the whole connection
    for it ("data packet referred to nonexistent channel"). That is what happens when a command ends before it has
    read its stdin, measured with a dozen threads about once in a hundred commands (paramiko 5.1, OpenSSH 9.2).

    `_send_message` is where messages go out, one at a time under paramiko's `clear_to_send_lock`, the close too; a
    channel is marked closed before its close is sent. So a channel that is not marked there is open on the wire.
    """

    def __init__(self, sock: socket.socket, window: int) -> None:
        self._acting = threading.local()
        super().__init__(sock, default_window_size=window)

    @contextlib.contextmanager
    def acting_for(self, channel: paramiko.Channel) -> Generator[None]:
        """What this thread sends inside the context is for `channel`, and left out when that is closed."""
        self._acting.channel = channel
        try:
            yield
        finally:
            self._acting.channel = None

    def _send_message(self, data: paramiko.Message) -> None:
        channel: paramiko.Channel | None = getattr(self._acting, "channel", None)
        if channel is None or not channel.closed:
            super()._send_message(data)  # pyright: ignore  # paramiko's own name; its stubs know public names only
