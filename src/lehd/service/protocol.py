"""HTTP connections that do not wait for ever: a client has so long for the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_SLOW = b"the head of the request did not arrive in time\n"
_ANSWER = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_SLOW), _SLOW)


def patient(seconds: float) -> type[H11Protocol]:
    """The protocol with a limit on the time that heads may take."""

    class Patient(H11Protocol):
        head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._disarm()
            elif self.head_timer is None:  # the beginning of a further request
                self._arm()

        def _arm(self) -> None:
            self.head_timer = self.loop.call_later(seconds, self._give_up)

        def _disarm(self) -> None:
            if self.head_timer is not None:
                self.head_timer.cancel()
                self.head_timer = None

        def _give_up(self) -> None:
            self.head_timer = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                if self.conn.trailing_data[0]:
                    self.transport.write(_ANSWER)
                self.transport.close()

    return Patient
