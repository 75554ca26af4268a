"""HTTP connections that do not wait for ever: for the head of a request, or for a client to take its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_SLOW = b"the head of the request did not arrive in time\n"
_ANSWER = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_SLOW), _SLOW)
SLOWEST = 1000  # bytes of an answer that a client has to take in a second, once the system's buffers are full


def patient(seconds: float, reading_seconds: float) -> type[H11Protocol]:
    """The protocol with limits on the time that heads may take, and that an answer may lie about untaken."""

    class Patient(H11Protocol):
        head_timer: asyncio.TimerHandle | None = None
        reading_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            self._stop_watching()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._disarm()
            elif self.head_timer is None:  # the beginning of a further request
                self._arm()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch(self.transport.get_write_buffer_size())

        def resume_writing(self) -> None:
            self._stop_watching()
            super().resume_writing()

        def _watch(self, left: int) -> None:
            self.reading_timer = self.loop.call_later(reading_seconds, self._look, left)

        def _look(self, before: int) -> None:
            """What nobody takes is not kept, and whoever writes it need not wait."""
            left = self.transport.get_write_buffer_size()
            if before - left < SLOWEST * reading_seconds:
                self.transport.abort()
            else:
                self._watch(left)

        def _stop_watching(self) -> None:
            if self.reading_timer is not None:
                self.reading_timer.cancel()
                self.reading_timer = None

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
