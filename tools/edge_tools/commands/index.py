"""edge-sdk index: choose what searches a store, prepare it, and say what it does on this store."""

import time
from typing import Annotated, Any

import typer

from edge_sdk import Datastore
from edge_sdk.neighbors import KINDS, ExactIndex, Index, choose_index, chosen_index, measure_recall, open_index
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import percent, print_json, print_table, spoken_fact

EXAMPLE = "edge-sdk index me.store --kind annoy --trees 50"

_K = 10
_TIMED = 100


def index_command(
    datastore: DatastoreArgument,
    kind: Annotated[
        str | None, typer.Option("--kind", help=f"One of: {', '.join(KINDS)}; default: the one in use, exact at first.")
    ] = None,
    trees: Annotated[int | None, typer.Option("--trees", help="annoy: trees of each segment (default 50).")] = None,
    search_k: Annotated[
        int | None, typer.Option("--search-k", help="annoy: nodes looked at in a search (default trees * k).")
    ] = None,
    ram_budget: Annotated[
        int | None, typer.Option("--ram-budget", help="exact: most bytes of memory (default 16 MB).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose what searches a datastore from now on, prepare it, and show its cost and its recall."""
    given = {"trees": trees, "search_k": search_k, "ram_budget": ram_budget}
    options = {name: value for name, value in given.items() if value is not None}
    with Datastore.open(datastore) as store:
        index = open_index(kind, store, **options)
        choose_index(store, kind or chosen_index(store)["kind"], **options)
        start = time.perf_counter()
        _prepare(index, store)
        facts = {**index.describe(), "entries": len(store), "prepared_s": round(time.perf_counter() - start, 2)}
        if len(store) >= 2:
            found = measure_recall(index, store, _K)
            facts |= {f"recall_at_{_K}": round(found.recall, 4), "queries": found.n_queries}
            facts |= {"search_ms": _median_ms(index, store)}
            if not isinstance(index, ExactIndex):
                facts |= {"exact_search_ms": _median_ms(ExactIndex(store), store)}
        index.close()
    if as_json:
        print_json(facts)
    else:
        print_table("Index", ("", ""), [_row(name, value) for name, value in facts.items()])


def _prepare(index: Index, store: Datastore) -> None:
    """What the first search would do, and segments for all entries that can have one."""
    if len(store):
        index.search(store.embeddings(store.table.order[:1]), 1)
    build = getattr(index, "build", None)
    if build is not None:
        build()


def _median_ms(index: Index, store: Datastore) -> float:
    """Milliseconds of one search."""
    queries = store.embeddings(store.table.order[-_TIMED:])
    index.search(queries[:1], _K)
    seconds = []
    for row in range(len(queries)):
        start = time.perf_counter()
        index.search(queries[row : row + 1], _K)
        seconds.append(time.perf_counter() - start)
    return round(1e3 * sorted(seconds)[len(seconds) // 2], 4)


def _row(name: str, value: Any) -> tuple[str, str]:
    """A fact as people read it."""
    return (f"recall at {_K}", percent(value)) if name == f"recall_at_{_K}" else spoken_fact(name, value)
