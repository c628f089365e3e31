"""Emptied classes: which classes have lost their last entry, and what took it, as an extension of the manifest.

The cause is noted because only an eviction has a cure (another policy); what was forgotten was meant to go.
"""

from collections.abc import Mapping
from typing import Any

EMPTIED = "emptied"
"""Name of the manifest's extension: a mapping from class to cause."""

EVICTED, FORGOTTEN = "evicted", "forgotten"


def causes_of(extensions: Mapping[str, Any]) -> dict[str, str]:
    """The mapping that a manifest's extensions hold; before causes were noted it was a list of evicted classes."""
    stored = extensions.get(EMPTIED, {})
    return dict(stored) if isinstance(stored, dict) else dict.fromkeys(stored, EVICTED)
