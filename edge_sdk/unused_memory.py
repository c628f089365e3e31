"""Giving freed memory back to the system, after the two moments that free much: a model loaded, an index built.

glibc keeps what was freed for the next allocation. Loading MobileNetV2 leaves 20 of its 57 MB so, which on a board is
room for another process; giving it back takes 1 to 20 ms, once (docs/footprint.md).
"""

import ctypes


def give_back() -> None:
    """Return freed memory to the system, where the C library can (glibc); elsewhere nothing happens."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(ctypes.c_size_t(0))
