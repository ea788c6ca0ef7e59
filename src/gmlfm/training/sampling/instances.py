"""The task `implicit`: positives and sampled negatives as instances with labels of their own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.splits import TEST, TRAIN, VALIDATION, Split, random_parts
from gmlfm.errors import DataError
from gmlfm.training.sampling.negatives import Items, NegativeSampler

Parts = npt.NDArray[np.int8]
_PARTS = (TRAIN, VALIDATION, TEST)
_RULE, _DISTINCT, _BY_PART = "negatives_drawn", "distinct", "distinct by part"  # an option of the split; the published has none


@dataclass(frozen=True)
class Instances:
    """The task `implicit`: positives (+1) and sampled negatives (-1) as instances, with the split of these.

    `rows` names the interaction each came from; a negative takes its positive's context.
    """

    users: npt.NDArray[np.int32]
    items: Items
    labels: npt.NDArray[np.float32]
    rows: Rows
    split: Split


def implicit_instances(
    data: Dataset,
    negatives: int = 2,
    seed: int = 0,
    *,
    as_published: bool = False,
    validation: float = 0.2,
    test: float = 0.1,
) -> Instances:
    """So many negatives a positive, none of them a positive of the user, in parts of 70/20/10 at random.

    No pair of user and item stands twice but a repeated positive, whose rows are in one part: a user's negatives are drawn
    without replacement, and where too few items are left, all of them are taken. Where items sell once, a part's negatives are
    items whose positive lies in that part, or items that are exempt: otherwise whatever was sold in training would be a no.

    as_published: drawn with replacement, before splitting, from all items; a note tells what an item's sale alone says then.
    """
    shares = (validation, test)
    if as_published:
        instances, rule = _published(data, negatives, seed, *shares), None
        notes = _sold_in_training_note(data, instances)
        instances = replace(instances, split=replace(instances.split, notes=notes))
    else:
        by_part = data.sells_once
        draw = _by_part if by_part else _all_at_once
        instances, rule = draw(data, negatives, seed, *shares), _BY_PART if by_part else _DISTINCT
    options = {"seed": seed, "task": "implicit", "negatives": negatives}
    drawn_hash = hashlib.sha256(instances.items.astype("<i4").tobytes()).hexdigest()[:16]
    options |= {"instances": drawn_hash, **({} if rule is None else {_RULE: rule})}
    return replace(instances, split=replace(instances.split, options=options, data_hash=data.content_hash))


def redraw_instances(data: Dataset, split: Split) -> Instances:
    """The instances that a saved split numbers, drawn again as its options say."""
    options = split.options
    n_negatives, seed = int(options["negatives"]), int(options["seed"])
    instances = implicit_instances(data, n_negatives, seed, as_published=_RULE not in options)
    if instances.split.options["instances"] != options["instances"]:
        raise DataError(f"the instances of dataset '{data.name}' cannot be drawn again as they were; train again.")
    return instances


def sold_in_training_rmse(instances: Instances) -> tuple[float, float]:
    """RMSE on the test part of what an item's positive in the training part says alone, and of one constant.

    Both have their values from the validation part: the mean label of items with and without such a positive, and of all.
    """
    parts = instances.split
    trained = instances.items[parts.train[instances.labels[parts.train] > 0]]
    errors = []
    for informed in (True, False):
        validation, test = (np.isin(instances.items[rows], trained) & informed for rows in (parts.validation, parts.test))
        squares = np.zeros(len(test))
        for is_sold in (False, True):
            known, labels = instances.labels[parts.validation][validation == is_sold], instances.labels[parts.test]
            guess = float(known.mean()) if len(known) else 0.0
            squares[test == is_sold] = (labels[test == is_sold] - guess) ** 2
        errors.append(float(np.sqrt(squares.mean())) if len(squares) else float("nan"))
    return errors[0], errors[1]


def _sold_in_training_note(data: Dataset, instances: Instances) -> tuple[str, ...]:
    if not data.sells_once:
        return ()
    informed, constant = sold_in_training_rmse(instances)
    return (
        f"items sell once, and negatives are drawn as published: 'it was sold in training, so no' alone has RMSE "
        f"{informed:.3f} on the test part (a constant: {constant:.3f}).",
    )


def _published(data: Dataset, negatives: int, seed: int, validation: float, test: float) -> Instances:
    positives = data.positive_rows
    users, items = data.user_numbers[positives], data.item_numbers[positives]
    sampler = NegativeSampler(users, items, len(data.users), data.seen_items, data.users.ids)
    drawn = sampler.draw(users, negatives, np.random.default_rng([seed, 3]))
    all_items = np.concatenate([items[:, None], drawn], axis=1).ravel()
    labels = np.tile(np.array([1.0] + [-1.0] * negatives, np.float32), len(positives))
    parts = random_parts(len(all_items), validation, test, np.random.default_rng([seed, 4]))
    rows = np.repeat(positives, 1 + negatives)
    return Instances(np.repeat(users, 1 + negatives), all_items, labels, rows, _split(parts))


def _all_at_once(data: Dataset, negatives: int, seed: int, validation: float, test: float) -> Instances:
    positives = data.positive_rows
    users, items = data.user_numbers[positives], data.item_numbers[positives]
    sampler = NegativeSampler(users, items, len(data.users), data.seen_items, data.users.ids)
    drawn, rows = _draw_distinct(sampler, data, positives, negatives, np.random.default_rng([seed, 3]))
    # Rows of a repeated pair share a place, and so a part; each negative has one of its own.
    _, pairs = np.unique(users.astype(np.int64) * len(data.items) + items, return_inverse=True)
    n_pairs = int(pairs.max()) + 1
    places = np.concatenate([pairs, n_pairs + np.arange(len(drawn))])
    parts = random_parts(n_pairs + len(drawn), validation, test, np.random.default_rng([seed, 4]))[places]
    return _assemble(data, positives, parts[: len(positives)], drawn, rows, parts[len(positives) :])


def _by_part(data: Dataset, negatives: int, seed: int, validation: float, test: float) -> Instances:
    """Positives are split first; each part's negatives then come from its own items and the exempt ones."""
    positives = data.positive_rows
    users, items = data.user_numbers[positives], data.item_numbers[positives]
    _, pairs = np.unique(users.astype(np.int64) * len(data.items) + items, return_inverse=True)
    parts = random_parts(int(pairs.max()) + 1, validation, test, np.random.default_rng([seed, 4]))[pairs]
    rng = np.random.default_rng([seed, 3])
    exempt = data.seen_items[~data.single_unit_items[data.seen_items]]
    excluded_users, excluded_items = [users], [items]
    drawn, rows, drawn_parts = [], [], []
    for part in _PARTS:
        candidates = np.union1d(items[parts == part], exempt).astype(np.int32)
        excluded = np.concatenate(excluded_users), np.concatenate(excluded_items)
        sampler = NegativeSampler(*excluded, len(data.users), candidates, data.users.ids)
        of_part, of_rows = _draw_distinct(sampler, data, positives[parts == part], negatives, rng)
        excluded_users.append(data.user_numbers[of_rows])
        excluded_items.append(of_part)
        drawn.append(of_part)
        rows.append(of_rows)
        drawn_parts.append(np.full(len(of_part), part, np.int8))
    return _assemble(data, positives, parts, np.concatenate(drawn), np.concatenate(rows), np.concatenate(drawn_parts))


def _draw_distinct(sampler: NegativeSampler, data: Dataset, rows: Rows, n: int, rng: np.random.Generator) -> tuple[Items, Rows]:
    """n negatives a row, no item twice for a user, as many as the user leaves; and the row that each takes its context from."""
    slots = rng.permutation(np.repeat(rows, n))
    slots = slots[np.argsort(data.user_numbers[slots], kind="stable")]
    drawn, taken = sampler.draw_by_user(data.user_numbers[slots], rng)
    return drawn, slots[taken]


def _assemble(data: Dataset, positives: Rows, parts: Parts, drawn: Items, drawn_rows: Rows, drawn_parts: Parts) -> Instances:
    """Positives and negatives by interaction row, a row's positive first."""
    if len(drawn) == 0:
        raise DataError(f"every user of dataset '{data.name}' has all items, so there is no negative to learn from.")
    rows = np.concatenate([positives, drawn_rows])
    order = np.argsort(rows, kind="stable")
    items = np.concatenate([data.item_numbers[positives], drawn])[order]
    labels = np.repeat(np.array([1.0, -1.0], np.float32), [len(positives), len(drawn)])[order]
    split = _split(np.concatenate([parts, drawn_parts])[order])
    return Instances(data.user_numbers[rows[order]], items, labels, rows[order], split)


def _split(parts: Parts) -> Split:
    train, validation, test = (np.flatnonzero(parts == part) for part in _PARTS)
    return Split("random", train=train, validation=validation, test=test, unused=np.empty(0, np.int64))
