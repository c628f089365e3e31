"""owner_only: how a file is made that holds something of a user."""

import os

OWNER_ONLY = 0o600
"""Mode of such a file; its folder may be opened to others one day, or it is copied or moved out of it."""


def owner_only(path: str, flags: int) -> int:
    """The `opener` of such a file for `open`: nobody but its owner may read a new one, whatever the umask allows."""
    return os.open(path, flags | os.O_CLOEXEC, OWNER_ONLY)
