from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gmlfm import load_dataset
from gmlfm.data.schema import Field
from gmlfm.data.sources.inspection import inspect_files, write_schema
from gmlfm.errors import DataError, SchemaError


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Three files as a shop's export would have them."""
    purchases = ["Käufer;Artikel;Datum;Menge;Kanal"]
    purchases += [
        f"{n % 7:04d};A-{n % 11};{1 + n % 27:02d}.{1 + n % 12:02d}.2024;{1 + n % 3};{'web' if n % 2 else 'app'}"
        for n in range(120)
    ]
    purchases.insert(40, "0003;A-1")
    (tmp_path / "purchases.csv").write_bytes("\r\n".join(purchases).encode("latin-1"))
    buyers = ['Käufer;Ort;"age";joined'] + [
        f'{n:04d};"Straße ""{n % 3}""";{"NULL" if n == 2 else 20 + n};2020-01-0{n + 1}' for n in range(7)
    ]
    (tmp_path / "buyers.csv").write_bytes("\n".join(buyers).encode("latin-1"))
    items = ["Artikel\tname\ttags\tprice\tcolour"]
    items += [
        f"A-{n}\tThing {n}, used, by hand\t{'red|old' if n % 2 else 'new|red|big'}\t{n},5\t{'blue' if n % 3 else ''}"
        for n in range(11)
    ]
    (tmp_path / "items.tsv").write_text("\ufeff" + "\n".join(items), encoding="utf-8")
    return tmp_path


def test_a_shops_messy_export_is_understood(shop: Path) -> None:
    inspected = inspect_files([shop / "items.tsv", shop / "buyers.csv", shop / "purchases.csv"], shop)
    schema = inspected.schema
    assert (schema.interactions.path, schema.interactions.user, schema.interactions.item) == (
        "purchases.csv",
        "Käufer",
        "Artikel",
    )
    assert (schema.interactions.time, schema.interactions.weight) == ("Datum", "Menge")
    assert (schema.interactions.read.separator, schema.interactions.read.encoding, schema.interactions.read.tolerate) == (
        ";",
        "cp1252",
        1,
    )
    assert schema.users is not None
    assert schema.items is not None
    assert {field.name: field.kind for field in schema.users.fields} == {"Ort": "category", "age": "number"}
    assert schema.users.read.null == ("", "NULL")
    assert {field.name: field.kind for field in schema.items.fields} == {"tags": "set", "price": "number", "colour": "category"}
    assert schema.items.title == "name"
    assert schema.items.read.decimal == ","
    assert "first line 41 (2 fields instead of 5)" in inspected.guess.reasons["interactions.read.tolerate"]
    write_schema(inspected, shop / "dataset.toml")
    data = load_dataset(shop)
    assert data.users.ids.to_list()[:2] == ["0000", "0001"]
    assert data.items.fields["price"].to_list()[1] == 1.5
    assert data.users.fields["Ort"][0] == 'Straße "0"'
    assert data.users.fields["age"][2] is None


def test_what_was_written_before_is_kept(shop: Path) -> None:
    inspected = inspect_files([shop / "purchases.csv"], shop)
    write_schema(inspected, shop / "dataset.toml")
    before = (shop / "dataset.toml").read_text()
    with pytest.raises(DataError, match="exists already; it was left as it is"):
        write_schema(inspected, shop / "dataset.toml")
    assert (shop / "dataset.toml").read_text() == before
    write_schema(inspected, shop / "dataset.toml", force=True)


def test_a_file_of_numbers_without_a_header(tmp_path: Path) -> None:
    rows = [f"{n % 5}\t{100 + n % 9}\t{1 + n % 5}\t{881250000 + n}" for n in range(60)]
    (tmp_path / "u.data").write_text("\n".join(rows))
    inspected = inspect_files([tmp_path / "u.data"], tmp_path)
    schema = inspected.schema.interactions
    assert schema.read.columns == ("column_1", "column_2", "column_3", "column_4")
    assert schema.time == "column_4"
    named = inspect_files([tmp_path / "u.data"], tmp_path, user="column_1", item="column_2").schema.interactions
    assert (named.user, named.item) == ("column_1", "column_2")


def test_movielens_as_csv_is_not_led_astray_by_small_numbers(tmp_path: Path) -> None:
    n = 300
    ratings = pl.DataFrame(
        {
            "userId": [1 + i % 20 for i in range(n)],
            "movieId": [1 + i * 7 % 50 for i in range(n)],
            "rating": [1 + i % 5 for i in range(n)],
            "timestamp": [978300000 + i for i in range(n)],
        }
    )
    ratings.write_csv(tmp_path / "ratings.csv")
    genres = ["Action|Comedy", "Drama", "Comedy"]
    movies = pl.DataFrame(
        {
            "movieId": range(1, 51),
            "title": [f"Film {i} (1999)" for i in range(50)],
            "genres": [genres[i % 3] for i in range(50)],
        }
    )
    movies.write_csv(tmp_path / "movies.csv")
    users = pl.DataFrame(
        {"userId": range(1, 21), "gender": ["F", "M"] * 10, "age": [1, 18, 25, 35] * 5, "zip": [f"0{i:04d}" for i in range(20)]}
    )
    users.write_csv(tmp_path / "users.csv")
    schema = inspect_files([tmp_path / name for name in ("movies.csv", "ratings.csv", "users.csv")], tmp_path).schema
    assert (schema.interactions.user, schema.interactions.item) == ("userId", "movieId")
    assert (schema.interactions.label, schema.interactions.time) == ("rating", "timestamp")
    assert schema.items is not None
    assert schema.users is not None
    assert [(field.name, field.kind) for field in schema.items.fields] == [("genres", "set")]
    assert [(field.name, field.kind) for field in schema.users.fields] == [("gender", "category"), ("age", "number")]


def test_parquet_and_json_lines(tmp_path: Path) -> None:
    pl.DataFrame({"user": [1, 1, 2], "item": ["a", "b", "a"]}).write_parquet(tmp_path / "events.parquet")
    (tmp_path / "items.jsonl").write_text('{"item": "a", "tags": ["x", "y"]}\n{"item": "b", "tags": ["y"]}\n')
    inspected = inspect_files([tmp_path / "events.parquet", tmp_path / "items.jsonl"], tmp_path)
    assert inspected.schema.items is not None
    assert inspected.schema.items.fields[0].kind == "set"
    write_schema(inspected, tmp_path / "dataset.toml")
    assert load_dataset(tmp_path).items.fields["tags"].to_list() == [["x", "y"], ["y"]]


def test_what_cannot_be_guessed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("when,how much\n2020-01-01,1.5\n2020-01-02,2.5\n")
    with pytest.raises(SchemaError, match=r"no column of .*looks like the user's id .*--user COLUMN"):
        inspect_files([tmp_path / "a.csv"], tmp_path)
    with pytest.raises(SchemaError, match="has no column 'buyr'"):
        inspect_files([tmp_path / "a.csv"], tmp_path, user="buyr")
    with pytest.raises(DataError, match="is a folder"):
        inspect_files([tmp_path], tmp_path)
    (tmp_path / "b.csv").write_text("a,b\n" + "1,2\n1\n" * 5)
    with pytest.raises(DataError, match="more than a fifth of all lines"):
        inspect_files([tmp_path / "b.csv"], tmp_path)
    (tmp_path / "c.csv").write_text("user,item\n")
    with pytest.raises(DataError, match="has a header but no rows"):
        inspect_files([tmp_path / "c.csv"], tmp_path)


def test_one_column_is_never_both_user_and_item(tmp_path: Path) -> None:
    rows = [(1 + n * 7 % 30, 1 + n * 3 % 50, f"2020-01-{1 + n % 28:02d}") for n in range(300)]
    pl.DataFrame(rows, schema=["buyer", "product", "when"], orient="row").write_csv(tmp_path / "orders.csv")
    pl.DataFrame({"id": range(1, 1001), "city": ["Rome", "Oslo"] * 500}).write_csv(tmp_path / "users.csv")
    pl.DataFrame({"id": range(1, 51), "colour": ["red", "blue"] * 25}).write_csv(tmp_path / "items.csv")
    files = [tmp_path / name for name in ("orders.csv", "users.csv", "items.csv")]
    schema = inspect_files(files, tmp_path).schema
    assert (schema.interactions.user, schema.interactions.item) == ("buyer", "product")
    with pytest.raises(SchemaError, match="cannot be both"):
        inspect_files(files, tmp_path, user="buyer", item="buyer")
    with pytest.raises(DataError, match="is given twice"):
        inspect_files([files[0], tmp_path / "." / "orders.csv"], tmp_path)


def test_a_first_line_like_the_others_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("\n".join(f"u{n % 9},p{n % 7},2020-01-{1 + n % 28:02d}" for n in range(100)))
    schema = inspect_files([tmp_path / "e.csv"], tmp_path).schema.interactions
    assert schema.read.columns == ("column_1", "column_2", "column_3")
    assert schema.time == "column_3"


BOOKS = """"ISBN";"Book-Title";"Book-Author";"Year-Of-Publication";"Publisher";"Image-URL-S"
"""


def book_crossing(folder: Path, n: int = 240) -> list[Path]:
    """Ratings, users and books as the well-known export has them: all quoted, Latin-1, a publisher called Publisher."""
    publishers = ["Penguin", "Editions du Seuil", "Publisher", "Diogenes Verlag", "Münchner Haus"]
    books = [
        f'"{440_000_000 + 7 * i:09d}X";"The {["Long", "Dark", "Small"][i % 3]} Story &amp; Nr {i}";"Zoë {"ABCDEFG"[i % 7]}. Writer";'
        f'"{0 if i == 5 else 2050 if i == 6 else 1960 + i % 45}";"{publishers[i % 5]}";'
        f'"http://images.example.com/images/P/{440_000_000 + 7 * i:09d}X.01.S.jpg"'
        for i in range(60)
    ]
    (folder / "BX-Books.csv").write_bytes((BOOKS + "\n".join(books)).encode("latin-1"))
    ages = ["NULL", "0", "244", *(str(18 + i) for i in range(37))]
    users = [f'"{i + 1}";"{["oslo, norway", "rome, lazio, italy"][i % 2]}";"{ages[i]}"' for i in range(40)]
    (folder / "BX-Users.csv").write_bytes(('"User-ID";"Location";"Age"\n' + "\n".join(users)).encode("latin-1"))
    ratings = [
        f'"{1 + i * 7 % 40}";"{440_000_000 + 7 * (i * 11 % 60):09d}X";"{0 if i % 5 < 3 else 5 + i % 6}"' for i in range(n)
    ]
    (folder / "BX-Book-Ratings.csv").write_bytes(('"User-ID";"ISBN";"Book-Rating"\n' + "\n".join(ratings)).encode("latin-1"))
    return [folder / name for name in ("BX-Book-Ratings.csv", "BX-Users.csv", "BX-Books.csv")]


def test_a_table_of_books_keeps_its_names(tmp_path: Path) -> None:
    schema = inspect_files(book_crossing(tmp_path), tmp_path).schema
    assert schema.items is not None
    assert schema.items.read.header is None
    assert schema.items.read.columns is None
    assert (schema.items.id, schema.items.title) == ("ISBN", "Book-Title")
    assert [field.name for field in schema.items.fields] == ["Book-Author", "Year-Of-Publication", "Publisher"]
    assert (schema.interactions.user, schema.interactions.item, schema.interactions.label) == ("User-ID", "ISBN", "Book-Rating")


def test_what_is_doubtful_in_a_table_of_books_is_noted_in_its_description(tmp_path: Path) -> None:
    inspected = inspect_files(book_crossing(tmp_path), tmp_path)
    write_schema(inspected, tmp_path / "dataset.toml")
    text = (tmp_path / "dataset.toml").read_text(encoding="utf-8")
    assert "# note: 'Book-Rating' is 0 in 144 of 240 rows (60%) beside ratings of 5 to 10" in text
    assert "# note: 'Age' has 2 of 39 values that cannot be ages, such as 0 and 244" in text
    assert "# note: 'Year-Of-Publication' has 2 of 60 values that cannot be years, such as 0 and 2050" in text
    assert "# Image-URL-S: web addresses: not for training" in text
    assert len(inspected.guess.warnings) == 3
    assert load_dataset(tmp_path).items.titles is not None


def test_atomic_files_keep_their_types_and_lose_them_in_their_names(tmp_path: Path) -> None:
    rows = [f"{n % 7}\t{n % 11}\t{1 + n % 5}\t{881250949 + n}" for n in range(90)]
    (tmp_path / "x.inter").write_text("user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + "\n".join(rows))
    things = [f"{n}\tFilm Number {n}\t{1990 + n % 3}\t{'Drama War' if n % 2 else 'War Film-Noir Drama'}" for n in range(11)]
    (tmp_path / "x.item").write_text(
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n" + "\n".join(things)
    )
    people = [f"{n}\t{20 + n % 3}\t{10000 + 7 * n}" for n in range(7)]
    (tmp_path / "x.user").write_text("user_id:token\tage:token\tzip_code:token\n" + "\n".join(people))
    inspected = inspect_files([tmp_path / name for name in ("x.item", "x.user", "x.inter")], tmp_path)
    schema = inspected.schema
    assert (schema.interactions.user, schema.interactions.item) == ("user_id", "item_id")
    assert (schema.interactions.time, schema.interactions.label) == ("timestamp", "rating")
    assert schema.users is not None
    assert schema.items is not None
    assert schema.users.fields == (Field("age", "category"),)
    assert schema.items.fields == (Field("release_year", "category"), Field("class", "set", " "))
    assert schema.items.title == "movie_title"
    write_schema(inspected, tmp_path / "dataset.toml")
    data = load_dataset(tmp_path)
    assert data.items.fields["class"].to_list()[:2] == [["War", "Film-Noir", "Drama"], ["Drama", "War"]]


@pytest.mark.parametrize("separator", ["\t", ",", ";", "::"])
def test_texts_alone_have_a_header_or_none(tmp_path: Path, separator: str) -> None:
    rows = [separator.join((f"{'abcdefgh'[n % 8]}nn", ["tea pot", "cup", "old lamp"][n % 3])) for n in range(50)]
    path = tmp_path / "e.txt"
    path.write_text("\n".join([separator.join(("wer", "was")), *rows]))
    schema = inspect_files([path], tmp_path).schema.interactions
    assert (schema.user, schema.item, schema.read.header) == ("wer", "was", None)
    path.write_text("\n".join(rows))
    inspected = inspect_files([path], tmp_path)
    schema = inspected.schema.interactions
    assert (schema.user, schema.item) == ("column_1", "column_2")
    assert (schema.read.header, schema.read.columns) == (False, ("column_1", "column_2"))
    assert "no header line" in inspected.files[str(path)]
    write_schema(inspected, tmp_path / "dataset.toml")
    assert len(load_dataset(tmp_path).seen_users) == 8
    assert inspect_files([path], tmp_path, header=True).schema.interactions.user == "ann"


def test_a_first_line_with_a_value_twice_and_a_header_with_a_name_twice(tmp_path: Path) -> None:
    (tmp_path / "r.data").write_text("\n".join(f"{1 + n % 7}\t{1 + n % 5}\t{1 + n % 4}" for n in range(90)))
    assert inspect_files([tmp_path / "r.data"], tmp_path).schema.interactions.read.header is False
    (tmp_path / "e.csv").write_text("user,item,name,name\n" + "\n".join(f"u{n % 9},p{n % 7},a,b" for n in range(60)))
    inspected = inspect_files([tmp_path / "e.csv"], tmp_path)
    assert inspected.schema.interactions.read.columns == ("user", "item", "name", "name_2")
    write_schema(inspected, tmp_path / "dataset.toml")
    assert load_dataset(tmp_path).n_interactions == 60


def test_rows_without_ids_are_tolerated_and_reported(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("user,item\n" + "\n".join(f"{'' if n == 5 else n % 9},p{n % 7}" for n in range(60)))
    inspected = inspect_files([tmp_path / "e.csv"], tmp_path)
    assert inspected.schema.interactions.read.tolerate == 1
    assert "1 row(s) have no user or no item" in inspected.guess.reasons["interactions.read.tolerate"]
    write_schema(inspected, tmp_path / "dataset.toml")


def test_nothing_is_written_of_data_that_do_not_load(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("user,item\n" + "\n".join(f"{n % 9},p{n % 7}" for n in range(60)))
    (tmp_path / "users.csv").write_text("user,city\n1,Rome\n1,Oslo\n")
    (tmp_path / "dataset.toml").write_text("# mine")
    inspected = inspect_files([tmp_path / "e.csv", tmp_path / "users.csv"], tmp_path)
    with pytest.raises(DataError, match="again"):
        write_schema(inspected, tmp_path / "dataset.toml", force=True)
    assert (tmp_path / "dataset.toml").read_text() == "# mine"


def test_control_characters_do_not_break_the_toml(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(
        "user,item,a\x01b\n" + "\n".join(f"{n % 9},p{n % 7},x\x02{n % 3}" for n in range(60)) + "\nbro\x03ken\n"
    )
    write_schema(inspect_files([tmp_path / "e.csv"], tmp_path), tmp_path / "dataset.toml")
    assert load_dataset(tmp_path).n_interactions > 0
