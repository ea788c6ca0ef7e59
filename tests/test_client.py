"""The client's answers are the Recommender's, through a service that runs here."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import uvicorn
from polars.testing import assert_frame_equal

from gmlfm import Client, Dataset, Recommender
from gmlfm.connections import Connections, ServiceError
from gmlfm.errors import DataError, GmlfmError, NotSupportedError, OptionError
from gmlfm.reports import ObserveReport
from gmlfm.retrieval.explaining import Explanation
from gmlfm.serve import ServeOptions, create_app

QUICK: dict[str, Any] = {"k": 4, "epochs": 2, "lr": 0.02, "v_scale": 0.3, "threads": 1}


def data(*, whole: bool) -> Dataset:
    """Ids are whole numbers or texts; with whole numbers there are no titles."""
    rng = np.random.default_rng(1)
    name = (lambda kind, n: n) if whole else (lambda kind, n: f"{kind}{n}")
    rows = [(name("u", n % 9), name("i", int(rng.integers(14))), n, ("web", "app")[n % 2]) for n in range(90)]
    table = pl.DataFrame(rows, schema=["user", "item", "time", "channel"], orient="row")
    items = pl.DataFrame(
        {
            "item": [name("i", n) for n in range(16)],
            "name": [None if n == 3 else f"Film <b>{n}</b>" for n in range(16)],
            "colour": [("red", "blue", None)[n % 3] for n in range(16)],
            "price": [float(n) for n in range(16)],
        }
    )
    users = pl.DataFrame({"user": [name("u", n) for n in range(9)], "city": [f"city {n % 2}" for n in range(9)]})
    fields = {"colour": {"kind": "category"}, "price": {"kind": "number"}}
    schema: dict[str, Any] = {
        "interactions": {"user": "user", "item": "item", "time": "time", "context": {"channel": "category"}},
        "items": {"id": "item", "fields": fields} if whole else {"id": "item", "title": "name", "fields": fields},
        "users": {"id": "user", "fields": {"city": {"kind": "category"}}},
    }
    return Dataset.from_tables(table, users=users, items=items.drop("name") if whole else items, schema=schema)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Its address, while it runs in a thread."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module", params=[False, True], ids=["texts", "whole numbers"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read-only."""
    folder = tmp_path_factory.mktemp("client") / "run"
    Recommender("gml-fm", **QUICK).fit(data(whole=request.param), out=folder)
    return folder


@pytest.fixture
def both(folder: Path, tmp_path: Path) -> Iterator[tuple[Client, Recommender]]:
    """A client of a service over a copy of the run, and the run as a Recommender in a copy of its own."""
    copies = [Path(shutil.copytree(folder, tmp_path / name / "run")) for name in ("served", "here")]
    with served(create_app(copies[0], ServeOptions(log="none"))) as url, Client(url, retries=0) as client:
        yield client, Recommender.load(copies[1])


def named(recommender: Recommender, kind: str, *numbers: int) -> list[Any]:
    """Ids as the data have them."""
    is_whole = recommender.fitted.data.users.id_type == "integer"
    return [number if is_whole else f"{kind}{number}" for number in numbers]


CHOICES: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"context": {"channel": "app"}},
    {"filter": "price < 6"},
    {"candidates": "catalogue", "seen": True, "n": 5},
    {"at_most": {"colour": 1}, "n": 2},
    {"because": True, "n": 4},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_recommendations_are_the_same_table(both: tuple[Client, Recommender], choices: dict[str, Any]) -> None:
    client, here = both
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for user in named(here, "u", 3, 77):
            assert_frame_equal(client.recommend([user], **choices), here.recommend([user], **choices), check_exact=True)
        users = named(here, "u", 3, 0, 77, 5)  # who are ranked one by one there, and together here
        assert_frame_equal(client.recommend(users, **choices), here.recommend(users, **choices), rel_tol=1e-5, abs_tol=1e-6)


def test_one_id_is_no_list_of_letters(both: tuple[Client, Recommender]) -> None:
    client, here = both
    user = named(here, "u", 3)[0]
    assert_frame_equal(client.recommend(user, 2), here.recommend(user, 2), check_exact=True)


def test_what_the_service_notes_is_warned_of(both: tuple[Client, Recommender]) -> None:
    client, here = both
    with pytest.warns(UserWarning, match="n is 500, but only"):
        client.recommend(named(here, "u", 3), 500)
    with pytest.warns(UserWarning, match="city = 'nowhere' was never met"):
        client.recommend_for({"city": "nowhere"}, n=2)


def test_newcomers(both: tuple[Client, Recommender]) -> None:
    client, here = both
    for attributes, history in (({"city": "city 1"}, []), (None, named(here, "i", 3, 5)), ({}, named(here, "i", 2))):
        for more in ({"n": 4}, {"n": 3, "because": True, "filter": "colour == 'red'"}):
            expected = here.recommend_for(attributes, history, **more)
            assert_frame_equal(client.recommend_for(attributes, history, **more), expected, check_exact=True)


def test_scores_of_pairs_in_their_order(both: tuple[Client, Recommender]) -> None:
    client, here = both
    users, items = named(here, "u", 3, 1, 3, 77, 1), named(here, "i", 1, 2, 3, 4, 5)
    pairs = list(zip(users, items, strict=True))
    for given in (pairs, pl.DataFrame({"user": users, "item": items, "more": users})):
        expected = here.predict(given, context={"channel": "web"})
        assert_frame_equal(client.predict(given, context={"channel": "web"}), expected, rel_tol=1e-5)


def test_reasons(both: tuple[Client, Recommender]) -> None:
    client, here = both
    (user,), (item,) = named(here, "u", 3), named(here, "i", 1)
    asked, expected = client.explain(user, item), here.explain(user, item)
    assert asked.score == pytest.approx(expected.score)
    assert sum(term.value for term in asked.terms) == pytest.approx(expected.score, abs=1e-5)
    assert asked.by_event() == pytest.approx(expected.by_event())
    others = Explanation(0.0, tuple(term for term in expected.terms if term.role is None))
    assert asked.by_fields() == pytest.approx(others.by_fields())
    assert asked.labels() == others.labels()
    assert asked.event_labels() == expected.event_labels()
    assert dict(asked.steps()) == pytest.approx(dict(expected.steps()), abs=1e-5)
    assert str(asked).splitlines()[-1].endswith("score")


def test_scores_and_reasons_for_somebody_new(both: tuple[Client, Recommender]) -> None:
    client, here = both
    items = named(here, "i", 1, 4, 1)
    for attributes, history in (({"city": "city 1"}, []), (None, named(here, "i", 3, 5)), (None, ())):
        expected = here.predict_for(attributes, history, items, context={"channel": "app"})
        asked = client.predict_for(attributes, history, items, context={"channel": "app"})
        assert_frame_equal(asked, expected, rel_tol=1e-5)
        reasons = here.explain_for(attributes, history, items[1], context={"channel": "app"})
        told = client.explain_for(attributes, history, items[1], context={"channel": "app"})
        assert told.score == pytest.approx(reasons.score)
        assert told.by_event() == pytest.approx(reasons.by_event())
        assert sum(term.value for term in told.terms) == pytest.approx(reasons.score, abs=1e-5)
    assert_frame_equal(client.predict_for({}, [], []), here.predict_for({}, [], []))
    with pytest.raises(ServiceError, match="not in the catalogue"):
        client.predict_for({}, [], named(here, "i", 77))


def test_batches_keep_to_what_the_service_takes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer items than by default, and requests of more bytes than go in one."""
    here = Recommender.load(shutil.copytree(folder, tmp_path / "run"))
    users, items = named(here, "u", *range(9)), named(here, "i", *range(12))
    monkeypatch.setattr("gmlfm.client._BYTES", 400)
    sizes: list[int] = []
    ask = Connections.ask

    def asked(self: Connections, method: str, path: str, body: Any = None, **more: Any) -> Any:
        sizes.append(len(json.dumps(body)))
        return ask(self, method, path, body, **more)

    monkeypatch.setattr(Connections, "ask", asked)
    app = create_app(here, ServeOptions(log="none", max_n=4))
    with served(app) as url, Client(url, retries=0) as client:
        expected = here.recommend(users, 3)
        assert_frame_equal(client.recommend(users, 3), expected, rel_tol=1e-5, abs_tol=1e-6)
        pairs = [(user, item) for user in users for item in items]
        assert_frame_equal(client.predict(pairs), here.predict(pairs), rel_tol=1e-5)
        assert_frame_equal(client.predict_for({}, [], items), here.predict_for({}, [], items), rel_tol=1e-5)
        assert client.observe([{"user": f"w{n}", "item": items[n % 12]} for n in range(40)]) == ObserveReport(40, 0, 40)
        with pytest.raises(ServiceError, match="n is 5; expected a whole number of 1 to 4"):
            client.recommend(users[0], 5)
    assert len(sizes) > 12
    assert max(sizes) < 500, "the brackets and the name around what is counted"


def test_a_service_of_other_limits_refuses_batches_beyond_them(folder: Path) -> None:
    with served(create_app(folder, ServeOptions(log="none", max_n=2))) as url, Client(url, retries=0) as client:
        request = {"attributes": {}, "items": named(Recommender.load(folder), "i", 1, 2)}
        with pytest.raises(ServiceError, match="the number of items of all requests together is 22"):
            client._connections.ask("POST", "/score/batch", {"requests": [request] * 11})


def test_a_body_of_a_hundred_megabytes_is_refused_in_a_sentence(folder: Path) -> None:
    """Over a real socket: the sentence is not lost with the connection, nor sent for again."""
    options = ServeOptions(log="none", token="reading-token", write_token="writing-token")
    with served(create_app(folder, options)) as url:
        for token, status, sentence in (
            ("reading-token", 413, r"^the body has more than 1,048,576 bytes, the most that is read\.$"),
            ("wrong-token", 401, "^the token is wrong"),
        ):
            pauses: list[float] = []
            with Client(url, token, sleep=pauses.append) as client:
                with pytest.raises(ServiceError, match=sentence) as raised:
                    client.recommend_for({"city": "x" * (100 << 20)})
                assert (raised.value.status, pauses) == (status, [])


def test_a_change_that_came_too_late_may_still_be_made(folder: Path, tmp_path: Path) -> None:
    app = create_app(Path(shutil.copytree(folder, tmp_path / "run")), ServeOptions(log="none", timeout=0.05))
    item, may_end = named(Recommender.load(folder), "i", 1)[0], threading.Event()
    host = app.state.service.default
    mark, observe = host.mark, host.observe
    host.mark = lambda *given: may_end.wait(60) and mark(*given)
    host.observe = lambda *given: may_end.wait(60) and observe(*given)
    late = r"^the change took more than 0\.05 seconds, and may still be made; whether the change was made is not known\.$"
    with served(app) as url, Client(url, retries=3, sleep=lambda seconds: pytest.fail("it is not sent again")) as client:
        with pytest.raises(ServiceError, match=late) as raised:
            client.mark_sold([item])
        assert raised.value.status == 504
        with pytest.raises(ServiceError, match=late):
            client.observe({"user": "w", "item": item, "time": 1})
        may_end.set()
    assert host.served.recommender.stock.marks == {str(item): "sold"}, "and was"
    assert "w" in host.served.recommender.observed


def test_neighbours(both: tuple[Client, Recommender]) -> None:
    client, here = both
    (item,) = named(here, "i", 1)
    assert_frame_equal(client.similar_items(item, 4), here.similar_items(item, 4), check_exact=True)


OBSERVED: list[Any] = [
    {"user": 3, "item": 1},
    [{"user": 3, "item": 2, "time": 200}, {"user": 99, "item": 4, "time": 201.0, "event": "seen"}],
    {"user": [3, 98], "item": [5, 6], "time": [300, None]},
]


@pytest.mark.filterwarnings("ignore:kinds of events that are observed")
@pytest.mark.parametrize("rows", OBSERVED, ids=str)
def test_what_users_do_counts_at_once(both: tuple[Client, Recommender], rows: Any) -> None:
    client, here = both

    def ids(value: Any) -> Any:
        if isinstance(value, list):
            return [ids(part) for part in value]
        kinds = {"user": "u", "item": "i"}
        return {
            name: [named(here, kinds[name], n)[0] for n in part]
            if isinstance(part, list) and name in kinds
            else named(here, kinds[name], part)[0]
            if name in kinds
            else part
            for name, part in value.items()
        }

    rows = ids(rows)
    assert client.observe(rows) == here.observe(rows)
    for user in (3, 98, 99):
        asked = named(here, "u", user)
        assert_frame_equal(client.recommend(asked, 5), here.recommend(asked, 5), check_exact=True)


def test_tables_of_what_users_did(both: tuple[Client, Recommender]) -> None:
    client, here = both
    table = pl.DataFrame({"user": named(here, "u", 1, 2), "item": named(here, "i", 1, 2), "time": [500, 501]})
    assert client.observe(table) == ObserveReport(2, 0, 0)
    assert client.observe(table) == ObserveReport(0, 2, 0)
    assert client.observe([]) == ObserveReport()
    with pytest.warns(UserWarning, match="the column 'stars' of the observations is not read"):
        client.observe({"user": table["user"][0], "item": table["item"][0], "stars": 5})


def test_what_is_sold_and_back(both: tuple[Client, Recommender]) -> None:
    client, here = both
    user = named(here, "u", 3)
    before = client.recommend(user, 3)
    client.mark_sold([before["item"][0]])
    assert before["item"][0] not in client.recommend(user, 3)["item"]
    client.mark_back([before["item"][0]])
    assert_frame_equal(client.recommend(user, 3), before, check_exact=True)


def test_new_items_and_users_who_leave(both: tuple[Client, Recommender]) -> None:
    client, here = both
    (item,), (user,) = named(here, "i", 50), named(here, "u", 3)
    client.add_items(
        pl.DataFrame({"item": [item], "colour": ["red"], "price": [50.0]}).with_columns(
            [] if here.fitted.data.items.titles is None else [pl.lit("New").alias("name")]
        )
    )
    assert client.recommend(user, 1, filter="price == 50")["item"].to_list() == [item]
    client.observe({"user": user, "item": item})
    assert client.recommend(user)["known"].all()
    client.forget(user)
    client.forget(user)
    assert not client.recommend(user)["known"].any()
    client.reload()


def test_errors_are_the_services_sentences(both: tuple[Client, Recommender]) -> None:
    client, here = both
    user = named(here, "u", 3)
    for call in (
        lambda asked: asked.recommend(user, filter="colour ="),
        lambda asked: asked.recommend(user, filter="prize < 3"),
        lambda asked: asked.recommend(user, at_most={"no": 1}),
        lambda asked: asked.recommend(user, candidates="none"),
        lambda asked: asked.recommend(user, 0),
        lambda asked: asked.recommend([]),
        lambda asked: asked.recommend_for({"no": 1}),
        lambda asked: asked.predict([(user[0], named(here, "i", 77)[0])]),
        lambda asked: asked.observe({"user": user[0], "item": named(here, "i", 77)[0]}),
        lambda asked: asked.mark_sold(named(here, "i", 77)),
    ):
        with pytest.raises(GmlfmError) as expected:
            call(here)
        with pytest.raises(GmlfmError) as raised:
            call(client)
        if raised.value.__class__ is not ServiceError or raised.value.status == 400:
            assert str(raised.value) == str(expected.value)
        assert "Traceback" not in str(raised.value)


def test_a_run_of_several_and_tokens(folder: Path) -> None:
    options = ServeOptions(log="none", token="reading-token", write_token="writing-token")
    with served(create_app([folder, folder], options)) as url:
        user = Recommender.load(folder).fitted.data.users.ids[0]
        with Client(url, "reading-token", run="run-2") as client:
            assert client.recommend([user], 2).height == 2
            assert "run 'run-2'" in repr(client)
            with pytest.raises(ServiceError, match="may read alone") as raised:
                client.mark_sold(["i1"])
            assert raised.value.status == 403
        with Client(url, "wrong-token") as client, pytest.raises(ServiceError, match="the token is wrong"):
            client.recommend([user])
        with Client(url, "reading-token", run="third") as client, pytest.raises(ServiceError, match="no run 'third'"):
            client.recommend([user])
    assert "token" not in repr(client)


@pytest.mark.parametrize("interactions", [[{"user": 1}], ["x"], [None], {"user": 1, "when": 2}])
def test_rows_that_are_none_are_refused_before_they_are_sent(interactions: Any) -> None:
    with pytest.raises(DataError, match="expected as rows such as"):
        Client("http://127.0.0.1:1").observe(interactions)


def test_what_the_client_cannot_do() -> None:
    client = Client("http://127.0.0.1:1", retries=0)
    with pytest.raises(NotSupportedError, match="cannot be updated over HTTP"):
        client.add_items([], update=True)
    with pytest.raises(OptionError, match="timeout is 0"):
        Client("http://127.0.0.1:1", timeout=0)
    with pytest.raises(OptionError, match="retries is -1"):
        Client("http://127.0.0.1:1", retries=-1)
    with pytest.raises(OptionError, match="pairs takes"):
        client.predict([("u1",)])


class _Asked(Exception):
    """What would be sent."""


def test_only_what_can_be_made_twice_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(self: Any, method: str, path: str, body: Any = None, *, repeatable: bool = True) -> Any:
        raise _Asked(repeatable, body)

    monkeypatch.setattr("gmlfm.connections.Connections.ask", ask)
    client = Client("http://127.0.0.1:1")
    timed = {"user": "u", "item": "i", "time": date(2026, 1, 31)}
    for change, expected in (
        (lambda: client.observe(timed), True),
        (lambda: client.observe([timed, {"user": "u", "item": "i"}]), False),
        (lambda: client.observe({"user": "u", "item": "i", "time": float("nan")}), False),
        (lambda: client.mark_sold(["i"]), True),
        (lambda: client.add_items({"item": ["i"]}), False),
    ):
        with pytest.raises(_Asked) as raised:
            change()
        assert raised.value.args[0] is expected
    with pytest.raises(_Asked) as raised:
        client.observe(timed)
    assert raised.value.args[1] == {"events": [{"user": "u", "item": "i", "time": "2026-01-31"}]}
