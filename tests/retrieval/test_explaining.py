from __future__ import annotations

from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from gmlfm.models.base import Terms
from gmlfm.retrieval.explaining import Explanation, Term, contrast, explain

# Three attributes whose rows a, b add (a0 b0) |a1 - b1|, or a0 b0 alone.
ROWS = np.array([[2.0, 1.0], [3.0, 5.0], [-1.0, 0.0]])
IDS, X = np.array([4, 7, 9]), np.array([1.0, 0.5, 1.0], np.float32)


def names(rows: npt.NDArray[np.int64], x: npt.NDArray[np.float32]) -> list[tuple[str, str, str]]:
    assert (rows.tolist(), x.tolist()) == (IDS.tolist(), X.tolist())
    return [("user", "user", "u1"), ("item", "price", "9.5"), ("item", "tags", "new")]


def explained(constant: float = 0.0, has_distance: bool = True) -> Explanation:
    weight, distance = np.outer(ROWS[:, 0], ROWS[:, 0]), np.abs(ROWS[:, None, 1] - ROWS[None, :, 1])
    return explain(Terms(IDS, X, constant, ROWS[:, 0] * X, weight, distance if has_distance else None), names)


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
    assert list(asdict(explained())["terms"][0]) == ["kind", "fields", "attributes", "value", "weight", "distance"]


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

    difference = contrast(of(a=1.0, b=2.0), [of(a=4.0), of(b=6.0, c=1.0)])
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
