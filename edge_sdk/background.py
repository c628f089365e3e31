"""BackgroundCall: one call beside the work of the thread that asked for it."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BackgroundCall(Generic[Value]):
    """A call that has begun, in a thread of its own; whoever wants its result waits for it."""

    def __init__(self, call: Callable[[], Value], *, name: str, daemon: bool = False) -> None:
        """Begin; where the system gives no thread, the call is done when this returns.

        Args:
            call: what to do.
            name: of the thread.
            daemon: whether an interpreter that leaves need not wait for it.
        """
        self._call = call
        self._results: list[Value] = []
        self._error: Exception | None = None
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name=name, daemon=daemon)
        try:
            self._thread.start()
        except RuntimeError:  # a container's limit on processes and threads
            self._thread = None
            self._run()

    def result(self) -> Value:
        """What the call returned, when it has; raises what it raised."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except Exception as error:  # noqa: BLE001 (whatever it was, the thread that waits is told)
            self._error = error
