"""The Recommender's verbs over HTTP: what `gmlfm serve` answers, as the tables that the Recommender gives."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import numpy as np
import polars as pl

from gmlfm.arguments import id_of, ids_of, mapping, shown, whole_number
from gmlfm.connections import Connections, as_json
from gmlfm.connections import ServiceError as ServiceError
from gmlfm.data.interop import as_frame
from gmlfm.errors import DataError, NotSupportedError, OptionError
from gmlfm.reports import ObserveReport

if TYPE_CHECKING:
    from gmlfm.retrieval.explaining import Explanation

_ROWS = 2_000  # of a request that changes something
_BYTES = 512 << 10  # of a request's JSON: half of what a service reads
_LIMITS = {"n": 1_000, "n_of_batch": 10_000, "requests": 256}  # of a service that does not tell its own
_LATE = 504
_ROW = ("user", "item", "time", "event")
_DEFAULT_N = 10


class Client:
    """Client("http://127.0.0.1:8765").recommend(["u17"], n=10)

    token: as the service was given it, the writing one for what changes something; run: which one, where several are served.
    timeout: seconds for an answer; retries: so often a request is sent again where the service is busy, cannot be reached or
    closes the connection. What changes something is sent again only where that does nothing twice: where no connection could
    be made; where the service said that it was busy, by which it had changed nothing; and where the connection broke in
    between, if the change is the same when it is made twice (sold, back, forget, and observed rows that all have a time, since
    a row that is known already is counted alone). Several threads may ask.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        run: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            raise OptionError(f"timeout is {shown(timeout)}; expected a number of seconds above 0.")
        self._connections = Connections(url, token, timeout, whole_number(retries, "retries"), sleep)
        self._run = run
        self._schema: dict[str, Any] | None = None
        self._shape: dict[str, Any] | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._connections.url}{f', run {self._run!r}' if self._run else ''}>"

    def close(self) -> None:
        self._connections.close()

    def recommend(
        self,
        users: Sequence[Any] | str | int,
        n: int = _DEFAULT_N,
        *,
        seen: bool = False,
        context: Mapping[str, Any] | None = None,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        candidates: str = "interactions",
        at_most: Mapping[str, int] | None = None,
        because: bool = False,
    ) -> pl.DataFrame:
        """As `Recommender.recommend`."""
        n, ids = whole_number(n, "n", least=1), [_plain(user) for user in ids_of(users, "users")]
        if not ids:
            raise OptionError("users is empty; name one or more.")
        choices = _choices(n, context, filter, available, candidates, at_most, because)
        answers = self._answers("/recommend", [{"user": user, "seen": bool(seen), **choices} for user in ids], n)
        return self._ranked(answers, ids, because=because)

    def recommend_for(
        self,
        attributes: Mapping[str, Any] | None = None,
        history: Sequence[Any] = (),
        n: int = _DEFAULT_N,
        *,
        context: Mapping[str, Any] | None = None,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        candidates: str = "interactions",
        at_most: Mapping[str, int] | None = None,
        because: bool = False,
    ) -> pl.DataFrame:
        """As `Recommender.recommend_for`."""
        n = whole_number(n, "n", least=1)
        given = _newcomer(attributes, history, None)
        choices = _choices(n, context, filter, available, candidates, at_most, because)
        return self._ranked(self._answers("/recommend", [{**given, **choices}], n), None, because=because)

    def predict(self, pairs: Any, *, context: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """As `Recommender.predict`."""
        table = _pair_table(pairs)
        places: dict[Any, list[int]] = {}
        users, items = table["user"].to_list(), table["item"].to_list()
        for place, user in enumerate(users):
            places.setdefault(user, []).append(place)
        most = self._limits()["n"]
        asked = [(user, block) for user, all_places in places.items() for block in _blocks(all_places, most, items.__getitem__)]
        more = {} if context is None else {"context": _values(context)}
        requests = [{"user": user, "items": [items[place] for place in block], **more} for user, block in asked]
        scores, known = np.empty(len(users)), np.zeros(len(users), bool)
        longest = max((len(block) for _, block in asked), default=1)
        for (_, block), answer in zip(asked, self._answers("/score", requests, longest), strict=True):
            scores[block] = [row["score"] for row in answer["scores"]]
            known[block] = bool(answer["known"])
        return table.with_columns(pl.Series("score", scores), pl.Series("known", known))

    def explain(self, user: Any, item: Any, *, context: Mapping[str, Any] | None = None) -> Explanation:
        """As `Recommender.explain`, its terms added up by the earlier item or the fields that they are of."""
        from gmlfm.retrieval.served_reasons import explanation_of

        more = {} if context is None else {"context": _values(context)}
        body = {"user": _plain(id_of(user, "the user")), "item": _plain(id_of(item, "the item")), "most": 100, **more}
        return explanation_of(self._asked("/explain", body))

    def predict_for(
        self,
        attributes: Mapping[str, Any] | None = None,
        history: Sequence[Any] = (),
        items: Sequence[Any] = (),
        *,
        context: Mapping[str, Any] | None = None,
    ) -> pl.DataFrame:
        """As `Recommender.predict_for`."""
        somebody = _newcomer(attributes, history, context)
        blocks = list(_blocks([_plain(item) for item in ids_of(items, "items")], self._limits()["n"]))
        requests = [{**somebody, "items": block} for block in blocks]
        answers = self._answers("/score", requests, max(map(len, blocks), default=1))
        rows = [row for answer in answers for row in answer["scores"]]
        scores = pl.Series("score", [row["score"] for row in rows], dtype=pl.Float64)
        return pl.DataFrame([self._ids("item", [row["item"] for row in rows]), scores])

    def explain_for(
        self,
        attributes: Mapping[str, Any] | None = None,
        history: Sequence[Any] = (),
        item: Any = None,
        *,
        context: Mapping[str, Any] | None = None,
    ) -> Explanation:
        """As `Recommender.explain_for`, its terms added up as those of `explain`."""
        from gmlfm.retrieval.served_reasons import explanation_of

        body = {**_newcomer(attributes, history, context), "item": _plain(id_of(item, "the item")), "most": 100}
        return explanation_of(self._asked("/explain", body))

    def similar_items(self, item: Any, n: int = _DEFAULT_N) -> pl.DataFrame:
        """As `Recommender.similar_items`."""
        n = whole_number(n, "n", least=1)
        rows = self._asked("/similar", {"item": _plain(id_of(item, "the item")), "n": n})["items"]
        columns = [
            self._ids("item", [row["item"] for row in rows]),
            pl.Series("distance", [row["distance"] for row in rows], dtype=pl.Float64),
            pl.Series("rank", range(1, len(rows) + 1), dtype=pl.Int64),
        ]
        return pl.DataFrame([*columns, *self._titles(rows)])

    def observe(self, interactions: Any) -> ObserveReport:
        """As `Recommender.observe`, on the disk of the service when this returns: a table, a list of rows, or one row, with
        user, item and perhaps time and event. More than 2,000 rows go in several requests: of these each is kept whole."""
        rows = _rows(interactions)
        total = [0, 0, 0]
        for block in _blocks(rows, _ROWS):
            is_repeatable = all(row.get("time") is not None for row in block)
            answer = self._changed("/events", {"events": block}, repeatable=is_repeatable)
            total = [total[0] + answer["kept"], total[1] + answer["duplicates"], total[2] + answer["new_users"]]
        return ObserveReport(*total)

    def mark_sold(self, items: Sequence[Any]) -> None:
        """As `Recommender.mark_sold`."""
        self._changed("/availability", {"sold": [_plain(item) for item in ids_of(items, "items")]})

    def mark_back(self, items: Sequence[Any]) -> None:
        self._changed("/availability", {"available": [_plain(item) for item in ids_of(items, "items")]})

    def add_items(self, items: Any, *, update: bool = False) -> None:
        """As `Recommender.add_items`, and saved; items that are there already cannot be updated over HTTP. At most 10,000."""
        if update:
            raise NotSupportedError("items that are there cannot be updated over HTTP; use gmlfm add-items where the run lies.")
        table = as_frame(items, "new items")
        if table.height:
            self._changed("/items", {"items": [_values(row) for row in table.to_dicts()]}, repeatable=False)
            self._schema = self._shape = None

    def forget(self, user: Any) -> None:
        """As `Recommender.forget`; nothing happens where the service does not know the user."""
        path = f"/users/{quote(str(_plain(id_of(user, 'the user'))), safe='')}"
        try:
            self._changed(path, None, method="DELETE")
        except ServiceError as error:
            if error.status != 404:
                raise

    def reload(self) -> None:
        """The service takes the run that stands in its folder now."""
        self._changed("/reload", None)
        self._schema = self._shape = None

    def _answers(self, path: str, requests: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
        """One by itself, more in batches; what the service notes is warned of once."""
        if not requests:
            return []
        if len(requests) == 1:
            return [self._asked(path, requests[0])]
        limits, answers = self._limits(), list[dict[str, Any]]()
        for block in _blocks(requests, max(1, min(limits["requests"], limits["n_of_batch"] // n))):
            answers += self._asked(f"{path}/batch", {"requests": block})["answers"]
        _warn(dict.fromkeys(note for answer in answers for note in answer.get("notes", ())), 4)
        return answers

    def _limits(self) -> dict[str, int]:
        return {**_LIMITS, **self._of_schema().get("limits", {})}

    def _changed(self, path: str, body: Any, *, method: str = "POST", repeatable: bool = True) -> dict[str, Any]:
        """As `_asked`, of what changes something."""
        try:
            return self._asked(path, body, method=method, repeatable=repeatable)
        except ServiceError as error:
            if error.status != _LATE:
                raise
            raise ServiceError(f"{str(error).rstrip('.')}; whether the change was made is not known.", _LATE) from error

    def _asked(self, path: str, body: Any, *, method: str = "POST", repeatable: bool = True) -> dict[str, Any]:
        answer = self._connections.ask(method, self._of_run(path), body, repeatable=repeatable)
        if not isinstance(answer, dict):
            raise ServiceError(f"{self._connections.url} gives an answer of another service; is it a gmlfm service?")
        _warn(answer.get("notes", ()), 5)
        return answer

    def _of_run(self, path: str, **query: Any) -> str:
        query = {**query, **({} if self._run is None else {"run": self._run})}
        return f"{path}?{urlencode(query)}" if query else path

    def _of_data(self) -> dict[str, Any]:
        """Whether there are titles, and of which type the ids are: looked up once."""
        if self._shape is None:

            def first_id(name: str) -> Any:
                rows = self._connections.ask("GET", self._of_run(f"/{name}s", q="", limit=1))[f"{name}s"]
                return rows[0][name] if rows else ""

            whole = {name: isinstance(first_id(name), int) for name in ("user", "item")}
            self._shape = {"has_titles": bool(self._of_schema()["has_titles"]), **whole}
        return self._shape

    def _of_schema(self) -> dict[str, Any]:
        schema = self._schema
        if schema is None:
            schema = self._schema = self._connections.ask("GET", self._of_run("/schema"))
        return schema

    def _ranked(self, answers: list[dict[str, Any]], users: list[Any] | None, *, because: bool) -> pl.DataFrame:
        """users: of each answer; None for somebody new."""
        rows = [row for answer in answers for row in answer["items"]]
        lengths = [len(answer["items"]) for answer in answers]
        named = [user for user, n in zip(users or [None] * len(answers), lengths, strict=True) for _ in range(n)]
        columns = [
            self._ids("user", named),
            self._ids("item", [row["item"] for row in rows]),
            pl.Series("score", [row["score"] for row in rows], dtype=pl.Float64),
            pl.Series("rank", [rank for n in lengths for rank in range(1, n + 1)], dtype=pl.Int64),
            *self._titles(rows),
        ]
        if because:
            earlier = [row["because"] for row in rows]  # titles, or ids where there are none
            is_title = self._of_data()["has_titles"]
            columns.append(
                pl.Series("because", earlier, dtype=pl.String) if is_title else self._ids("item", earlier).alias("because")
            )
        if users is not None:
            known = [bool(answer["known"]) for answer in answers for _ in answer["items"]]
            columns.append(pl.Series("known", known, dtype=pl.Boolean))
        return pl.DataFrame(columns)

    def _titles(self, rows: list[dict[str, Any]]) -> list[pl.Series]:
        return [pl.Series("title", [row["title"] for row in rows], dtype=pl.String)] if self._of_data()["has_titles"] else []

    def _ids(self, name: str, ids: list[Any]) -> pl.Series:
        """In the type of the data's ids, as text where one cannot be of that type."""
        texts = pl.Series(name, [None if value is None else str(value) for value in ids], dtype=pl.String)
        typed = texts.cast(pl.Int64, strict=False) if self._of_data()[name] else texts
        return texts if typed.null_count() > texts.null_count() else typed


def _newcomer(
    attributes: Mapping[str, Any] | None, history: Sequence[Any], context: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Somebody new, as the service takes it."""
    given = _values(mapping({} if attributes is None else attributes, "attributes", "{'city': 'Osaka'}"))
    more = {} if context is None else {"context": _values(mapping(context, "context", "{'channel': 'app'}"))}
    return {"attributes": given, "history": [_plain(item) for item in ids_of(history, "the items of the history")], **more}


def _choices(
    n: int,
    context: Mapping[str, Any] | None,
    filter: str | None,
    available: Sequence[Any] | None,
    candidates: str,
    at_most: Mapping[str, int] | None,
    because: bool,
) -> dict[str, Any]:
    """What was given, as the service takes it."""
    given = {
        "context": None if context is None else _values(mapping(context, "context", "{'channel': 'app'}")),
        "filter": filter,
        "available": None if available is None else [_plain(item) for item in ids_of(available, "available items")],
        "caps": None if at_most is None else _values(mapping(at_most, "at_most", "{'category': 2}")),
        "because": True if because else None,
    }
    return {"n": n, "candidates": candidates, **{name: value for name, value in given.items() if value is not None}}


def _pair_table(pairs: Any) -> pl.DataFrame:
    if isinstance(pairs, list | tuple):
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise OptionError("pairs takes (user, item) pairs; one is none, or has another length.")
        return as_frame({name: [id_of(pair[place]) for pair in pairs] for place, name in enumerate(("user", "item"))}, "pairs")
    table = as_frame(pairs, "pairs")
    if not {"user", "item"} <= set(table.columns):
        raise OptionError(f"pairs has the columns {', '.join(table.columns)}; expected user and item.")
    return table.select("user", "item")


def _rows(interactions: Any) -> list[dict[str, Any]]:
    if isinstance(interactions, Mapping) and not any(
        isinstance(value, list | tuple | pl.Series) for value in interactions.values()
    ):
        interactions = [interactions]
    if not isinstance(interactions, list | tuple):
        interactions = as_frame(interactions, "observations").to_dicts()
    rows = []
    for row in interactions:
        if not isinstance(row, Mapping) or not {"user", "item"} <= set(row):
            raise DataError(f"observations are expected as rows such as {{'user': 'u17', 'item': 'i3'}}; got {shown(row)}.")
        others = [name for name in row if name not in _ROW]
        if others:
            _warn([f"the column '{others[0]}' of the observations is not read; user, item, time and event are."], 4)
        rows.append({name: value for name in _ROW if (value := _plain(row.get(name))) is not None})
    return rows


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """As JSON has it: what is no number is missing, a date is its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return sorted((_plain(member) for member in value), key=str)
    if isinstance(value, list | tuple | pl.Series | np.ndarray):
        return [_plain(member) for member in value]
    return value


def _blocks(values: list[Any], most: int, of: Callable[[Any], Any] = lambda value: value) -> Iterator[list[Any]]:
    """Of so many, and of no more than a request may hold, in which each stands as `of(value)`."""
    block: list[Any] = []
    size = 0
    for value in values:
        n_bytes = len(as_json(of(value))) + 2  # with a comma and a blank
        if block and (len(block) == most or size + n_bytes > _BYTES):
            yield block
            block, size = [], 0
        block.append(value)
        size += n_bytes
    if block:
        yield block


def _warn(notes: Iterable[str], stacklevel: int) -> None:
    for note in notes:
        warnings.warn(str(note), stacklevel=stacklevel)
