"""Every error that edge-sdk raises on purpose.

    EdgeSDKError
    ├── ModelFileError            not ours, damaged, newer format, unsupported by this onnxruntime
    ├── ExportError               what in the source model stands in the way, and the option that helps
    ├── InputError(ValueError)    wrong shape, dtype, non-finite, undecodable file
    ├── DatastoreError            damaged, foreign format, other model's store, no room, read-only
    │   └── DatastoreLockedError  another process is writing
    ├── ConfigError(ValueError)   capacity, k, interpolation weight, policy ... out of range
    └── MissingExtraError(ImportError)

A message is one line: what, where, expected, found, and the cure. A call that raises one of these has changed nothing.

    try:
        predictor.learn(x, "typing")
    except EdgeSDKError as error:
        logger.warning("not learnt: %s", error)
"""

# Never "edge-sdk[extra]": away from the checkout, pip would look for another project of that name in a public index.
_INSTALLED_BY = {"export": "'.[export]' in the checkout of edge-sdk"}
"""What pip is asked for where that is more than the missing package: torch's version matters."""


class EdgeSDKError(Exception):
    """Base of all errors raised on purpose by edge-sdk."""


class ModelFileError(EdgeSDKError):
    """The model file is not ours, is damaged, has a newer format, or this onnxruntime cannot run it."""


class ExportError(EdgeSDKError):
    """The source model cannot be exported as it stands; the message names the option that helps."""


class InputError(EdgeSDKError, ValueError):
    """An input has the wrong shape or dtype, holds a non-finite value, or cannot be decoded."""


class DatastoreError(EdgeSDKError):
    """The datastore is damaged, foreign, made with another model, full, or read-only."""


class DatastoreLockedError(DatastoreError):
    """Another process holds the write lock; the message names it."""


class ConfigError(EdgeSDKError, ValueError):
    """A setting (capacity, k, interpolation weight, policy, ...) is out of range."""


class MissingExtraError(EdgeSDKError, ImportError):
    """A package of an optional extra is not installed; `extra` names the extra, the message is the pip line."""

    def __init__(self, package: str, extra: str, *, instead: str = "") -> None:
        """Say what to install.

        Args:
            package: what is missing.
            extra: of this project's `setup.cfg`.
            instead: what else would help, if anything does.
        """
        cure = f"{package} is not installed: pip install {_INSTALLED_BY.get(extra, package)}"
        super().__init__(f"{cure}; or {instead}" if instead else cure)
        self.extra = extra
