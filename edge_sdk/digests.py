"""blake2b without the rest of `hashlib`.

`import hashlib` loads OpenSSL: 3.6 MB of resident memory and 2 to 5 ms, for one function that CPython carries itself.
The standard library's `random` goes the same way round for its SHA-512.
"""

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter without its own: OpenSSL's
    from hashlib import blake2b

__all__ = ["blake2b"]
