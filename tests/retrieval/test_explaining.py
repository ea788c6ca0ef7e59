from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from gmlfm.models.terms import EarlierTerms, Terms
from gmlfm.retrieval.explaining import EarlierNames, Explanation, Term, contrast, explain, field_sums

# Three attributes whose rows a, b add (a0 b0) |a1 - b1|, or a0 b0 alone.
ROWS = np.array([[2.0, 1.0], [3.0, 5.0], [-1.0, 0.0]])
IDS, X = np.array([4, 7, 9]), np.array([1.0, 0.5, 1.0], np.float32)


def names(rows: npt.NDArray[np.int64], x: npt.NDArray[np.float32]) -> list[tuple[str, str, str]]:
    assert (rows.tolist(), x.tolist()) == (IDS.tolist(), X.tolist())
    return [("user", "user", "u1"), ("item", "price", "9.5"), ("item", "tags", "new")]


def explained(constant: float = 0.0, has_distance: bool = True) -> Explanation:
    weight, distance = np.outer(ROWS[:, 0], ROWS[:, 0]), np.abs(ROWS[:, None, 1] - ROWS[None, :, 1])
    return explain(Terms(IDS, X, constant, ROWS[:, 0] * X, weight, distance if has_distance else None), names)


def earlier_terms(has_distance: bool = True) -> EarlierTerms:
    """Of two earlier items: 5, the last one, by its id and a price, and 3 by its id in the role past. The item that is scored has
    the last two attributes."""
    weight, distance = np.array([[1.0, 2.0], [0.5, -1.0], [4.0, 0.0]]), np.full((3, 2), 2.0)
    return EarlierTerms(
        np.array([5, 5, 3], np.int32),
        ["last", "last", "past"],
        np.array([1.0, 1.0, 0.5], np.float32),
        np.array([20, 21, 30]),
        np.array([1.0, 2.0, 0.5], np.float32),
        np.array([0.0, 0.25, -1.5]),
        weight,
        distance if has_distance else None,
    )


EARLIER_NAMES = EarlierNames(
    [("item", "i5"), ("price", "3"), ("item", "i3")], ["i5", "i5", "i3"], {"i5": "Alien", "i3": "Brazil"}
)


def with_history(has_distance: bool = True, names_of_items: EarlierNames = EARLIER_NAMES) -> Explanation:
    weight, distance = np.outer(ROWS[:, 0], ROWS[:, 0]), np.abs(ROWS[:, None, 1] - ROWS[None, :, 1])
    earlier = earlier_terms(has_distance)
    terms = Terms(IDS, X, 0.25, ROWS[:, 0] * X, weight, distance if has_distance else None, earlier)
    return explain(terms, names, names_of_items)


def test_terms_of_earlier_items_come_last_with_the_items_attributes_alone() -> None:
    plain, explanation = explained(0.25), with_history()
    assert explanation.terms[: len(plain.terms)] == plain.terms
    assert explanation.terms[len(plain.terms) :] == (
        Term("pair", ("last.item", "item.price"), ("last.item = i5", "item.price = 9.5"), 1.0, 1.0, 2.0, "i5", "last"),
        Term("pair", ("last.item", "item.tags"), ("last.item = i5", "item.tags = new"), 4.0, 2.0, 2.0, "i5", "last"),
        Term("linear", ("last.price",), ("last.price = 3",), 0.25, None, None, "i5", "last"),
        Term("pair", ("last.price", "item.price"), ("last.price = 3", "item.price = 9.5"), 1.0, 0.5, 2.0, "i5", "last"),
        Term("pair", ("last.price", "item.tags"), ("last.price = 3", "item.tags = new"), -4.0, -1.0, 2.0, "i5", "last"),
        Term("linear", ("past.item",), ("past.item = i3",), -1.5, None, None, "i3", "past"),
        Term("pair", ("past.item", "item.price"), ("past.item = i3", "item.price = 9.5"), 2.0, 4.0, 2.0, "i3", "past"),
        Term("pair", ("past.item", "item.tags"), ("past.item = i3", "item.tags = new"), 0.0, 0.0, 2.0, "i3", "past"),
    )
    assert explanation.score == plain.score + 2.25 + 0.5
    without = [(term.value, term.distance) for term in with_history(has_distance=False).terms if term.role == "last"]
    assert without == [(0.5, None), (2.0, None), (0.25, None), (0.5, None), (-2.0, None)]


def test_earlier_items_are_added_up_and_come_before_the_other_steps() -> None:
    explanation = with_history()
    assert list(explanation.by_event().items()) == [("i5", 2.25), ("i3", 0.5)]
    assert explanation.event_labels() == {"i5": "after Alien (last)", "i3": "after Brazil (past)"}
    plain = explained(0.25)
    assert explanation.steps() == [
        ("after Alien (last)", 2.25),
        ("after Brazil (past)", 0.5),
        *plain.steps()[:5],
        ("2 more", -0.75),
    ]
    assert explanation.steps(4) == [
        ("after Alien (last)", 2.25),
        ("1 more earlier item", 0.5),
        plain.steps()[0],
        ("6 more", -7.5 + 2.0 - 2.0 + 1.5 - 1.0 + 0.25),
    ]
    for most in range(1, 20):
        assert sum(value for _, value in explanation.steps(most)) == pytest.approx(explanation.score)
    assert sum(explanation.by_fields().values()) == pytest.approx(explanation.score)
    assert "after Alien (last)" in explanation._repr_html_()
    assert repr(explanation).endswith("15 terms, most +2.2500 of after Alien (last)>")
    assert plain.by_event() == {}


def test_a_title_that_two_earlier_items_share_is_told_apart_and_without_one_it_is_the_id() -> None:
    shared = with_history(names_of_items=replace(EARLIER_NAMES, titles={"i5": "Alien", "i3": "Alien"}))
    assert list(shared.event_labels().values()) == ["after Alien (i5) (last)", "after Alien (i3) (past)"]
    nameless = with_history(names_of_items=replace(EARLIER_NAMES, titles={}))
    assert list(nameless.event_labels().values()) == ["after i5 (last)", "after i3 (past)"]


def test_titles_of_others_are_text() -> None:
    hostile = with_history(names_of_items=replace(EARLIER_NAMES, titles={"i5": "<b>\x1b[2J"}))
    assert "after &lt;b&gt;" in hostile._repr_html_()
    assert r"after <b>\x1b[2J (last)" in str(hostile)


@pytest.mark.parametrize("has_distance", [True, False])
def test_sums_by_field_are_those_of_every_term(has_distance: bool) -> None:
    terms = Terms(IDS, X, 0.25, ROWS[:, 0] * X, np.outer(ROWS[:, 0], ROWS[:, 1]), None, None)
    fields = ["user", "item.tags", "item.tags"]

    def same_names(rows: npt.NDArray[np.int64], x: npt.NDArray[np.float32]) -> list[tuple[str, str, str]]:
        return [("user", "user", "u1"), ("item", "tags", "a"), ("item", "tags", "b")]

    assert field_sums(terms, fields) == pytest.approx(explain(terms, same_names).by_fields())
    with_earlier = replace(terms, earlier=earlier_terms(has_distance))
    expected = explain(with_earlier, same_names, EARLIER_NAMES).by_fields()
    sums = field_sums(with_earlier, fields, ["last.item", "last.price", "past.item"])
    assert sums == pytest.approx(expected)
    assert ("item.tags", "item.tags") in sums
    assert ("last.item",) not in sums
    assert [abs(value) for value in sums.values()] == sorted((abs(value) for value in sums.values()), reverse=True)


def test_a_label_lists_no_more_than_a_few_values() -> None:
    terms = tuple(Term("linear", ("past.item",), (f"past.item = i{n}",), 1.0, None, None, f"i{n}", "past") for n in range(20))
    assert Explanation(20.0, terms).labels() == {
        ("past.item",): f"past.item = {', '.join(f'i{n}' for n in range(8))} and 12 more"
    }
    nine = Explanation(9.0, terms[:9]).labels()[("past.item",)]
    assert nine.endswith("i7, i8")


def test_terms_are_the_global_term_the_linear_ones_and_every_pair() -> None:
    terms = explained(constant=0.25).terms
    assert terms == (
        Term("global", (), (), 0.25),
        Term("linear", ("user",), ("user = u1",), 2.0),
        Term("linear", ("item.price",), ("item.price = 9.5",), 1.5),
        Term("linear", ("item.tags",), ("item.tags = new",), -1.0),
        Term("pair", ("user", "item.price"), ("user = u1", "item.price = 9.5"), 6.0 * 4.0 * 0.5, 6.0, 4.0),
        Term("pair", ("user", "item.tags"), ("user = u1", "item.tags = new"), -2.0, -2.0, 1.0),
        Term("pair", ("item.price", "item.tags"), ("item.price = 9.5", "item.tags = new"), -3.0 * 5.0 * 0.5, -3.0, 5.0),
    )
    assert explained(constant=0.25).score == 0.25 + 2.5 + 12.0 - 2.0 - 7.5


def test_a_model_without_a_distance_has_weights_alone() -> None:
    pairs = [term for term in explained(has_distance=False).terms if term.kind == "pair"]
    assert [(term.value, term.weight, term.distance) for term in pairs] == [
        (3.0, 6.0, None),
        (-2.0, -2.0, None),
        (-1.5, -3.0, None),
    ]


def test_the_shape_that_others_read() -> None:
    shape = ["kind", "fields", "attributes", "value", "weight", "distance"]
    assert all(list(term.to_dict()) == shape for term in explained().terms)
    assert list(with_history().terms[-1].to_dict()) == [*shape, "earlier", "role"]


def test_fields_are_added_up_and_the_weightiest_comes_first() -> None:
    grouped = explained(constant=0.25).by_fields()
    assert list(grouped.items()) == [
        (("item.price", "user"), 12.0),
        (("item.price", "item.tags"), -7.5),
        (("user",), 2.0),
        (("item.tags", "user"), -2.0),
        (("item.price",), 1.5),
        (("item.tags",), -1.0),
        ((), 0.25),
    ]


def test_a_contrast_is_the_difference_from_the_others_mean() -> None:
    def of(**values: float) -> Explanation:
        terms = tuple(Term("linear", (field,), (field,), value) for field, value in values.items())
        return Explanation(sum(values.values()), terms)

    difference = contrast(of(a=1.0, b=2.0).by_fields(), [of(a=4.0).by_fields(), of(b=6.0, c=1.0).by_fields()])
    assert list(difference.items()) == [(("b",), -1.0), (("a",), -1.0), (("c",), -0.5)]


def test_it_prints_as_a_sum() -> None:
    explanation = explained(constant=0.25)
    assert str(explanation).splitlines() == [
        "  +12.0000  item.price = 9.5 x user = u1",
        "   -7.5000  item.price = 9.5 x item.tags = new",
        "   +2.0000  user = u1",
        "   -2.0000  item.tags = new x user = u1",
        "   +1.5000  item.price = 9.5",
        "   -1.0000  item.tags = new",
        "   +0.2500  the same for everything",
        "    5.2500  score",
    ]
    assert repr(explanation) == "<Explanation of the score 5.2500: 7 terms, most +12.0000 of item.price = 9.5 x user = u1>"
    assert repr(Explanation(0.0, ())) == "<Explanation of the score 0.0000: 0 terms>"


def test_members_of_a_set_are_listed_and_the_rest_is_one_step() -> None:
    def pair(first: str, second: str, value: float) -> Term:
        return Term("pair", ("item.tags", "item.tags"), (f"item.tags = {first}", f"item.tags = {second}"), value)

    terms = (pair("a", "b", 1.0), pair("a", "c", 2.0), Term("pair", ("user", "item.tags"), ("user = u", "item.tags = a"), 0.5))
    assert Explanation(3.5, terms).labels() == {
        ("item.tags", "item.tags"): "item.tags = a, b, c among themselves",
        ("item.tags", "user"): "item.tags = a x user = u",
    }
    many = tuple(Term("linear", (f"f{n}",), (f"f{n} = v",), float(20 - n)) for n in range(15))
    steps = Explanation(195.0, many).steps()
    assert len(steps) == 13
    assert steps[-1] == ("3 more", 8.0 + 7.0 + 6.0)
    assert sum(value for _, value in steps) == 195.0


def test_values_of_others_are_text_in_a_notebook_and_on_a_terminal() -> None:
    hostile = Explanation(1.0, (Term("linear", ("f",), ("f = <b>\x1b[2J",), 1.0),))
    assert "<td>f = &lt;b&gt;" in hostile._repr_html_()
    assert "<b>" not in hostile._repr_html_()
    assert r"f = <b>\x1b[2J" in str(hostile)
    assert r"f = <b>\x1b[2J" in repr(hostile)


def test_a_waterfall_ends_at_the_score() -> None:
    html = explained(constant=0.25)._repr_html_()
    assert html.count("<tr>") == 1 + 7 + 1
    assert "What the score 5.2500 consists of" in html
    # 12, then back by 7.5, then on: each bar begins where the one before ended.
    assert "margin-left:0.0%;width:100.0%" in html
    assert f"margin-left:{100 * 4.5 / 12:.1f}%;width:{100 * 7.5 / 12:.1f}%" in html
    assert f"margin-left:{100 * 4.5 / 12:.1f}%;width:{100 * 2.0 / 12:.1f}%" in html
    assert (
        f'<td>score</td><td style="text-align:right">5.2500</td><td style="width:20em"><div style="margin-left:0.0%;width:{100 * 5.25 / 12:.1f}%'
        in html
    )
