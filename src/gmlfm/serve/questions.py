"""Questions to a run: what is asked, checked, and the answer as JSON has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gmlfm.arguments import whole_number
from gmlfm.errors import OptionError
from gmlfm.recommender.because import because_column
from gmlfm.recommender.candidates import fulfils
from gmlfm.retrieval.explaining import ALIKE, Explanation
from gmlfm.serve.contracts import ExplainRequest, RecommendRequest, ScoreRequest, SimilarRequest, Whom
from gmlfm.serve.hosting import Served
from gmlfm.serve.notes import noted

Answer = dict[str, Any]


def recommended(served: Served, asked: RecommendRequest, max_n: int) -> Answer:
    n = whole_number(asked.n, "n", 1, max_n)
    choices: dict[str, Any] = {
        "context": asked.context,
        "filter": asked.filter,
        "available": asked.available,
        "candidates": asked.candidates,
        "at_most": asked.caps or None,
        "because": asked.because,
    }
    with noted() as notes:
        if is_newcomer(asked):
            if asked.seen:
                raise OptionError("seen goes with user only: what somebody new chose is always left out.")
            items, known = _for_newcomer(served, asked, n, choices), None
        else:
            items, known = _for_user(served, asked, n, choices)
    return {"items": items, "known": known, "notes": notes}


def _for_user(served: Served, asked: RecommendRequest, n: int, choices: Mapping[str, Any]) -> tuple[list[Answer], bool]:
    """By numbers, without a table on the way: this is what is asked most."""
    ranked = served.recommender.ranked(asked.user, n, seen=asked.seen, **choices)
    earlier = None if ranked.because is None else because_column(served.recommender.fitted, ranked.because).to_list()
    return _scored_cards(served, ranked.items.tolist(), ranked.scores.tolist(), earlier), bool(ranked.known[0])


def _for_newcomer(served: Served, asked: RecommendRequest, n: int, choices: Mapping[str, Any]) -> list[Answer]:
    table = served.recommender.recommend_for(asked.attributes, asked.history or (), n, **choices)
    earlier = table["because"].to_list() if asked.because else None
    return _scored_cards(served, served.catalogue.numbers_of(table["item"].to_list()), table["score"].to_list(), earlier)


def _scored_cards(served: Served, numbers: list[int], scores: list[float], earlier: list[Any] | None) -> list[Answer]:
    items = [{**card, "score": score} for card, score in zip(served.catalogue.cards(numbers), scores, strict=True)]
    if earlier is not None:
        for item, name in zip(items, earlier, strict=True):
            item["because"] = None if name is None else str(name)
    return items


def scored(served: Served, asked: ScoreRequest, max_n: int) -> Answer:
    whole_number(len(asked.items), "the number of items", 1, max_n)
    recommender, known = served.recommender, None
    with noted() as notes:
        if is_newcomer(asked):
            table = recommender.predict_for(asked.attributes, asked.history or (), asked.items, context=asked.context)
        else:
            table = recommender.predict([(asked.user, item) for item in asked.items], context=asked.context)
            known = bool(table["known"][0])
    ids = served.recommender.fitted.encoder.ids_of_items(np.array(served.catalogue.numbers_of(asked.items))).to_list()
    scores = [{"item": item, "score": score} for item, score in zip(ids, table["score"].to_list(), strict=True)]
    return {"scores": scores, "known": known, "notes": notes}


def explained(served: Served, asked: ExplainRequest, max_n: int) -> Answer:
    recommender, known = served.recommender, None
    with noted() as notes:
        if is_newcomer(asked):
            explanation = recommender.explain_for(asked.attributes, asked.history or (), asked.item, context=asked.context)
        else:
            explanation = recommender.explain(asked.user, asked.item, context=asked.context)
            number = int(recommender.fitted.encoder.user_numbers([asked.user])[0])
            known = bool(recommender.observed.index.trained_users[number])
    item = served.recommender.fitted.encoder.ids_of_items(np.array(served.catalogue.numbers_of([asked.item]))).to_list()[0]
    parts = _parts(explanation, asked.most)
    return {"item": item, "score": explanation.score, "parts": parts, "known": known, "notes": notes}


def _parts(explanation: Explanation, most: int) -> list[Answer]:
    """The weightiest earlier items and groups of fields; what is left of each kind is one part."""
    events, labels = explanation.by_event(), explanation.event_labels()
    roles: dict[Any, dict[str, None]] = {}
    for term in explanation.terms:
        if term.role is not None:
            roles.setdefault(term.earlier, {})[term.role] = None
    earlier = [
        {
            "kind": "earlier",
            "label": labels[item],
            "value": value,
            "item": item,
            "title": explanation.titles.get(item),
            "roles": list(roles[item]),
        }
        for item, value in events.items()
    ]
    others = Explanation(explanation.score, tuple(term for term in explanation.terms if term.role is None))
    names = others.labels()
    fields = [
        {"kind": "fields", "label": names.get(key, ALIKE), "value": value, "fields": list(key)}
        for key, value in others.by_fields().items()
    ]
    return [*_with_rest(earlier, most, "earlier items"), *_with_rest(fields, most, "groups of fields")]


def _with_rest(parts: list[Answer], most: int, what: str) -> list[Answer]:
    if len(parts) <= most:
        return parts
    rest = sum(part["value"] for part in parts[most:])
    return [*parts[:most], {"kind": "rest", "label": f"{len(parts) - most} more {what}", "value": rest}]


def similar(served: Served, asked: SimilarRequest, max_n: int) -> Answer:
    n = whole_number(asked.n, "n", 1, max_n)
    recommender, catalogue = served.recommender, served.catalogue
    items = recommender.fitted.data.items
    allowed = None if asked.filter is None else fulfils(items, asked.filter)
    table = recommender.similar_items(asked.item, n if allowed is None else len(items))
    numbers = np.array(catalogue.numbers_of(table["item"].to_list()), np.int64)
    distances = table["distance"].to_numpy()
    if allowed is not None:
        is_allowed = allowed[numbers]
        numbers, distances = numbers[is_allowed][:n], distances[is_allowed][:n]
    cards = catalogue.cards(numbers.tolist())
    return {"items": [{**card, "distance": distance} for card, distance in zip(cards, distances.tolist(), strict=True)]}


def is_newcomer(asked: Whom) -> bool:
    """Whether somebody new is asked for; refused where both or nobody are."""
    is_new = asked.attributes is not None or asked.history is not None
    if is_new == (asked.user is not None):
        raise OptionError("say for whom, in one way: user; or attributes or history or both, for somebody new.")
    return is_new


def is_quick(asked: RecommendRequest) -> bool:
    """Whether it asks for a user's list and nothing more: no conditions, limits or reasons, of which some take long."""
    more = (asked.attributes, asked.history, asked.context, asked.filter, asked.available, asked.caps)
    return asked.user is not None and not asked.because and not any(more)


def stamped(answer: Answer, served: Served) -> Answer:
    return {"notes": [], **answer, "run": served.stamp}


def batch(answers: Sequence[Answer], served: Served) -> Answer:
    return {"answers": list(answers), "run": served.stamp, "notes": []}


def listed(mapping: Mapping[str, Any]) -> list[Any]:
    return list(mapping.values())
