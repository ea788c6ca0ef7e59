from __future__ import annotations

from pathlib import Path

import pytest

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.naming import name_columns

OPTIONS = ReadOptions(null=("",), tolerate=100)


def named(tmp_path: Path, text: str, header: bool | None = None) -> tuple[bool | None, tuple[str, ...] | None]:
    (tmp_path / "t.csv").write_text(text)
    naming = name_columns(str(tmp_path / "t.csv"), OPTIONS, header)
    return naming.header, naming.columns


def test_a_plain_header_needs_no_words(tmp_path: Path) -> None:
    assert named(tmp_path, "user,item\nann,x\nbob,y\nann,y\n") == (None, None)
    assert named(tmp_path, "user,item\nann,x\nbob,y\nann,y\n", True) == (True, None)


def test_a_file_without_header_gets_names(tmp_path: Path) -> None:
    assert named(tmp_path, "1,1,5\n1,2,3\n2,1,4\n") == (False, ("column_1", "column_2", "column_3"))
    assert named(tmp_path, "user,item\nann,x\n", False) == (False, ("column_1", "column_2"))


def test_the_types_of_atomic_files_are_taken_off_the_names(tmp_path: Path) -> None:
    (tmp_path / "t.item").write_text("item_id:token\tclass:token_seq\n1\ta b\n")
    naming = name_columns(str(tmp_path / "t.item"), OPTIONS)
    assert (naming.header, naming.columns) == (True, ("item_id", "class"))
    assert naming.types == {"item_id": "token", "class": "token_seq"}


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("user,item,item", ("user", "item", "item_2")),
        ("item,item,item_2", ("item", "item_3", "item_2")),
        (",user,user", ("column_1", "user", "user_2")),
    ],
)
def test_a_name_that_stands_twice_is_numbered(tmp_path: Path, header: str, names: tuple[str, ...]) -> None:
    assert named(tmp_path, f"{header}\n" + "".join(f"{n},p{n % 3},q{n % 3}\n" for n in range(9))) == (True, names)


def test_an_empty_file_is_left_to_its_reader(tmp_path: Path) -> None:
    assert named(tmp_path, "") == (None, None)
