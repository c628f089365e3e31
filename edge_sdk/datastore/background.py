"""BackgroundSync: one sync of a datastore's files, beside the work of the thread that asked for it."""

import threading
from collections.abc import Callable


class BackgroundSync:
    """A sync that has begun. It always runs to its end: an interpreter that leaves waits for it."""

    def __init__(self, sync: Callable[[], None]) -> None:
        """Begin it; where the system gives no thread it is done when this returns."""
        self._sync = sync
        self._error: Exception | None = None
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="datastore-sync")
        try:
            self._thread.start()
        except RuntimeError:  # a container's limit on processes and threads
            self._thread = None
            self._run()

    def wait(self) -> None:
        """Until it has ended; raises what it raised."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._sync()
        except Exception as error:  # noqa: BLE001 (whatever it was, the thread that waits is told)
            self._error = error
