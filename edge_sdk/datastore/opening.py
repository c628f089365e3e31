"""open_or_create: the datastore an application names, made if it is missing."""

from pathlib import Path

from edge_sdk.datastore.store import Datastore
from edge_sdk.errors import ConfigError, DatastoreError
from edge_sdk.model import ModelMetadata

DEFAULT_CAPACITY = 1000


def open_or_create(
    folder: Path,
    metadata: ModelMetadata,
    *,
    capacity: int | None,
    policy: str | None,
    dtype: str | None,
    allow_new_classes: bool,
    read_only: bool,
) -> Datastore:
    """The existing datastore, whose settings must be those asked for, or a new one."""
    if not folder.exists():
        if read_only:
            raise DatastoreError(
                f"{folder}: no such datastore; learn something first (edge-sdk ingest, or Predictor.open)"
            )
        try:
            return Datastore.create(
                folder,
                model=metadata,
                capacity=DEFAULT_CAPACITY if capacity is None else capacity,
                policy=policy or "fifo",
                dtype=dtype or "float16",
                allow_new_classes=allow_new_classes,
            )
        except DatastoreError:
            if not folder.exists():
                raise  # otherwise another process has made it meanwhile
    store = Datastore.open(folder, model=metadata, read_only=read_only)
    wanted = {"capacity": capacity, "policy": policy, "dtype": dtype}
    for name, value in wanted.items():
        if value is not None and value != getattr(store, name):
            found = getattr(store, name)
            store.close()
            raise ConfigError(
                f"{folder}: the datastore has {name} {found}, asked for {value}; leave it out or make a new datastore"
            )
    return store
