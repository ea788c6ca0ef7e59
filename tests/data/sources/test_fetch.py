"""Each source on small files in its true format, which the tests write."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gmlfm import load_dataset
from gmlfm.cli import main
from gmlfm.data.sources import catalogue
from gmlfm.data.sources.amazon import convert_amazon, read_lines
from gmlfm.data.sources.archives import check_archive
from gmlfm.data.sources.fetch import accept_terms, get_dataset, terms_to_accept
from gmlfm.data.sources.libfm import read_libfm
from gmlfm.errors import DataError, OptionError
from tests.data.sources.served import serving
from tests.data.sources.test_named import movielens


def ml_100k(path: Path) -> None:
    flags = {"Toy Story (1995)": [3, 4, 5], "Été (1994)": [8], "Nameless": []}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t1\t5\t874965758\n1\t2\t3\t876893171\n2\t1\t4\t888550871\n")
        archive.writestr("ml-100k/u.user", "1|24|M|technician|85711\n2|53|F|other|94043\n")
        lines = [
            "|".join([str(at), title, "01-Jan-1995", "", "http://x", *("1" if genre in on else "0" for genre in range(19))])
            for at, (title, on) in enumerate(flags.items(), start=1)
        ]
        archive.writestr("ml-100k/u.item", "\n".join(lines).encode("latin-1"))


def test_movielens_100k_genres_become_a_string_and_a_set(tmp_path: Path) -> None:
    ml_100k(tmp_path / "ml-100k.zip")
    folder = get_dataset("ml-100k", tmp_path, files=[tmp_path / "ml-100k.zip"], any_checksum=True)
    data = load_dataset("ml-100k", data_root=tmp_path)
    assert data.items.fields["genres"].to_list() == ["Animation|Children's|Comedy", "Drama", ""]
    assert data.users.fields["age"].to_list() == [24.0, 53.0]
    assert data.items.titles is not None
    assert data.items.titles[1] == "Été (1994)"
    text = (folder / "dataset.toml").read_text().replace('{ genres = "category" }', '{ genre_set = "set" }')
    (folder / "dataset.toml").write_text(text)
    assert load_dataset(folder).items.fields["genre_set"].to_list()[0] == ["Animation", "Children's", "Comedy"]


def test_movielens_1m_is_downloaded_once_and_loads_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    movielens(tmp_path / "made")
    content = (tmp_path / "made" / "ml-1m.zip").read_bytes()
    root = tmp_path / "root"
    with serving(content) as served:
        known = replace(catalogue.SOURCES["ml-1m"], url=f"{served.url}/file.zip", md5=hashlib.md5(content).hexdigest())
        monkeypatch.setitem(catalogue.SOURCES, "ml-1m", known)
        for _ in range(2):
            get_dataset("ml-1m", root)
        assert len(served.asked) == 1
    assert load_dataset("ml-1m", data_root=root).n_interactions == 3


def test_terms_are_shown_and_accepted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    movielens(tmp_path / "made")
    arguments = [
        "data",
        "get",
        "ml-1m",
        "--from",
        str(tmp_path / "made" / "ml-1m.zip"),
        "--any-checksum",
        "--data-root",
        str(tmp_path),
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert "may not be redistributed" in told
    assert "must be accepted first" in told
    assert not (tmp_path / "ml-1m").exists()
    assert main([*arguments, "--accept-terms"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    assert capsys.readouterr().err == ""
    assert terms_to_accept("ml-1m", tmp_path) is None
    assert terms_to_accept("bazaar", tmp_path) is None
    accept_terms("ml-100k", tmp_path)
    assert terms_to_accept("ml-1m", tmp_path) is None


def test_a_local_archive_with_another_checksum_is_refused(tmp_path: Path) -> None:
    movielens(tmp_path / "made")
    with pytest.raises(
        DataError, match=r"the official archive c4d9eecfca2ab87c1945afe126590906; fetch it again, or .*--any-checksum"
    ):
        get_dataset("ml-1m", tmp_path, files=[tmp_path / "made" / "ml-1m.zip"])
    with pytest.raises(DataError, match="does not exist or is no file"):
        get_dataset("ml-1m", tmp_path, files=[tmp_path / "gone.zip"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("../evil.dat", b"x", "a path that leads outside"),
        ("/etc/evil.dat", b"x", "a path that leads outside"),
        ("bomb.dat", b"0" * 3_000_000, "looks like a bomb"),
        ("other.dat", b"x", "has no member 'ml-1m/ratings.dat'"),
    ],
)
def test_dangerous_or_wrong_archives_are_not_opened(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    with pytest.raises(DataError) as caught:
        get_dataset("ml-1m", tmp_path, files=[tmp_path / "a.zip"], any_checksum=True)
    assert message in str(caught.value)
    assert not (tmp_path / "ml-1m").exists()


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("m", b"some content that will be changed")
    raw = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(raw.replace(b"some", b"sOme", 1))
    with pytest.raises(DataError, match="the member 'm' is damaged"):
        check_archive(tmp_path / "a.zip", ("m",))
    (tmp_path / "a.zip").write_bytes(raw[:20])
    with pytest.raises(DataError, match="is no zip archive or is damaged"):
        check_archive(tmp_path / "a.zip", ("m",))


REVIEWS = [
    {"reviewerID": "A1", "asin": "B1", "overall": 5.0, "unixReviewTime": 1400000000, "reviewText": 'It\'s "fine"'},
    {"reviewerID": "A1", "asin": "B2", "overall": 3.0, "unixReviewTime": 1400000001},
    {"reviewerID": "A2", "asin": "B9", "overall": 1.0, "unixReviewTime": 1400000002},
]
PRODUCTS = [
    {"asin": "B1", "title": "Pen", "categories": [["Office", "Pens"], ["Office", "Gifts"]], "brand": "Bic", "price": 2.5},
    {"asin": "B2", "categories": [["Office", "Paper"]], "brand": ""},
    {"asin": "XX", "categories": [["Never asked for"]]},
]


@pytest.mark.parametrize("write", [json.dumps, repr], ids=["json", "literal"])
def test_amazon_lines_may_be_json_or_python_literals(tmp_path: Path, write: object) -> None:
    assert callable(write)
    for name, rows in (("reviews_Office_Products_5.json.gz", REVIEWS), ("meta_Office_Products.json.gz", PRODUCTS)):
        (tmp_path / name).write_bytes(gzip.compress("".join(write(row) + "\n" for row in rows).encode()))
    get_dataset("amazon-office", tmp_path / "root", files=[tmp_path])
    data = load_dataset("amazon-office", data_root=tmp_path / "root")
    assert (data.n_interactions, len(data.items)) == (3, 3)
    assert data.items.fields["category"].to_list() == ["Office > Pens", "Office > Paper", None]
    assert any("1 items (1 interactions) have no row" in line for line in data.warnings)
    toml = tmp_path / "root" / "amazon-office" / "dataset.toml"
    lines = toml.read_text().splitlines()
    toml.write_text(
        "\n".join(line.removeprefix("# ") if "labels =" in line else line for line in lines if not line.startswith("fields"))
    )
    labelled = load_dataset(toml)
    assert labelled.items.fields["labels"].to_list()[0] == ["Office", "Pens", "Gifts"]
    assert labelled.items.fields["price"].to_list()[0] == 2.5


def test_amazon_reviews_alone_have_no_attributes(tmp_path: Path) -> None:
    (tmp_path / "reviews_Automotive_5.json").write_text("\n".join(json.dumps(row) for row in REVIEWS))
    get_dataset("amazon-auto", tmp_path, files=[tmp_path / "reviews_Automotive_5.json"])
    assert load_dataset("amazon-auto", data_root=tmp_path).items.fields.width == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'asin': __import__('os').system('true')}", "line 2 is neither JSON nor a Python literal"),
        ("{broken", "line 2 is neither JSON nor a Python literal"),
        ("[1, 2]", "line 2 holds a list"),
        ('{"asin": "B1"}', "line 2 has no 'reviewerID'"),
    ],
)
def test_lines_that_are_no_reviews_are_refused_with_their_number(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "reviews_x.json").write_text(json.dumps(REVIEWS[0]) + "\n" + line + "\n")
    with pytest.raises(DataError) as caught:
        convert_amazon("amazon-x", tmp_path / "reviews_x.json", None, tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_truncated_gzip_tells_how_far_it_went(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = "".join(json.dumps({**REVIEWS[0], "reviewText": rng.bytes(200).hex()}) + "\n" for _ in range(2000))
    (tmp_path / "r.json.gz").write_bytes(gzip.compress(text.encode())[:-5000])
    with pytest.raises(DataError, match=r"r\.json\.gz is truncated after line 1,\d+"):
        list(read_lines(tmp_path / "r.json.gz"))


def mercari(folder: Path) -> None:
    folder.mkdir()
    (folder / "categories.csv").write_text("id,name,parent\n1,Ticket,\n2,Books,\n11,Concert,1\n111,Arena,11\n21,Novel,2\n")
    header = "id,category,condition,brand,size,price,seller,method,origin,duration,payer\n"
    rows = [f"{n},{111 if n < 20 else 21},new,b,,100,s{n},mail,Tokyo,1-2 days,seller\n" for n in range(30)]
    (folder / "items.csv").write_text(header + "".join(rows))
    purchases = [f"2018-01-{1 + n:02d} 10:00:00,{'u1' if n % 4 else 'u2'},{n},{111 if n < 20 else 21}\n" for n in range(30)]
    (folder / "purchases.csv").write_text("time,buyer,item,category\n" + "".join(purchases))


def test_mercari_keeps_one_root_and_buyers_with_five_purchases(tmp_path: Path) -> None:
    mercari(tmp_path / "tables")
    get_dataset("mercari", tmp_path, files=[tmp_path / "tables"], category="ticket")
    data = load_dataset("mercari-ticket", data_root=tmp_path)
    assert sorted(data.users.ids.to_list()) == ["u1", "u2"]
    assert data.n_interactions == 20
    assert data.items.fields["category"].unique().to_list() == ["111"]
    assert data.schema.min_count == {"item": 2}
    with pytest.raises(DataError, match="no root category is called 'Tickt'; did you mean 'Ticket'"):
        get_dataset("mercari", tmp_path, files=[tmp_path / "tables"], category="Tickt")
    with pytest.raises(OptionError, match="needs --category"):
        get_dataset("mercari", tmp_path, files=[tmp_path / "tables"])
    (tmp_path / "tables" / "items.csv").unlink()
    with pytest.raises(DataError, match="has no file 'items'"):
        get_dataset("mercari", tmp_path, files=[tmp_path / "tables"], category="Ticket")


def test_libfm_files(tmp_path: Path) -> None:
    (tmp_path / "a.libfm").write_text("1 0:1 5:1 9:1\n-1 0:1 6:1 8:1 9:1  # a comment\n\n1 qid:3 1:1 5:1\n")
    rows = read_libfm(tmp_path / "a.libfm")
    assert rows.labels.tolist() == [1, -1, 1]
    assert rows.starts.tolist() == [0, 3, 7, 9]
    get_dataset("libfm", tmp_path, files=[tmp_path / "a.libfm"], out=tmp_path / "a")
    data = load_dataset(tmp_path / "a")
    assert data.users.ids.to_list() == ["0", "1"]
    assert data.context["attributes"].to_list() == [["9"], ["8", "9"], None]
    (tmp_path / "b.libfm").write_text("1 0:1 5:1\n1 0:x\n")
    with pytest.raises(DataError, match="line 2 is not 'label index:value"):
        read_libfm(tmp_path / "b.libfm")
    (tmp_path / "c.libfm").write_text("1 0:0.5 5:1\n")
    with pytest.raises(DataError, match="values other than 1"):
        get_dataset("libfm", tmp_path, files=[tmp_path / "c.libfm"])
    (tmp_path / "d.libfm").write_text("1 0:1 5:inf\n")
    with pytest.raises(DataError, match="not finite"):
        read_libfm(tmp_path / "d.libfm")


def test_the_list_tells_what_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    movielens(tmp_path / "ml-1m")
    assert main(["data", "list", "--data-root", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["ml-1m"]["here"] == str(tmp_path / "ml-1m")
    assert rows["ml-1m"]["bytes"] > 0
    assert rows["ml-100k"]["here"] is None
    assert main(["data", "list", "--data-root", str(tmp_path)]) == 0
    assert "built in" in capsys.readouterr().out


def test_wrong_names_and_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--data-root", str(tmp_path)]
    for arguments, message in (
        (["ml-2m"], "did you mean 'ml-1m'"),
        (["amazon-auto", "--accept-terms"], "cannot be downloaded; give reviews_Automotive_5.json.gz"),
        (["amazon-auto", "--accept-terms", "--from", str(tmp_path)], "no file named reviews_Automotive* was given"),
        (["bazaar", "--purchases", "0"], "a bazaar needs users and purchases"),
        (["bazaar", "--purchases", "900000000000000"], "GiB free; ask for fewer"),
        (["ml-1m", "--purchases", "10"], "--users and --purchases belong to bazaar"),
    ):
        assert main(["data", "get", *arguments, *root]) == 2
        assert message in capsys.readouterr().err
    assert main(["data", "get", "bazaar", "--users", "100", *root]) == 0
    assert load_dataset("bazaar-100-1212-0", data_root=tmp_path).n_interactions == 1212


def test_each_amazon_set_takes_its_own_files(tmp_path: Path) -> None:
    for raw, reviewer in (("Automotive", "auto"), ("Office_Products", "office")):
        rows = "".join(json.dumps({**row, "reviewerID": reviewer}) + "\n" for row in REVIEWS)
        (tmp_path / f"reviews_{raw}_5.json.gz").write_bytes(gzip.compress(rows.encode()))
    get_dataset("amazon-office", tmp_path / "root", files=[tmp_path])
    assert load_dataset("amazon-office", data_root=tmp_path / "root").users.ids.to_list() == ["office"]


@pytest.mark.parametrize("change", [{"overall": "x"}, {"unixReviewTime": None}, {"overall": [5]}])
def test_values_of_another_kind_are_refused_with_their_line(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "reviews_x.json").write_text(json.dumps(REVIEWS[0]) + "\n" + json.dumps({**REVIEWS[1], **change}) + "\n")
    with pytest.raises(DataError, match="line 2 holds a value of another kind"):
        convert_amazon("amazon-x", tmp_path / "reviews_x.json", None, tmp_path / "out")


def test_nobodys_files_are_lost_to_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "x.libfm").write_text("1 0:1 5:1\n")
    with pytest.raises(DataError, match=r"holds 'x\.libfm', which would be lost"):
        get_dataset("libfm", tmp_path, files=[tmp_path / "p" / "x.libfm"], out=tmp_path / "p")
    assert (tmp_path / "p" / "x.libfm").exists()


def test_odd_names_still_make_good_folders(tmp_path: Path) -> None:
    (tmp_path / 'we"ird.libfm').write_text("1 0:1 5:1\n")
    get_dataset("libfm", tmp_path, files=[tmp_path / 'we"ird.libfm'])
    assert load_dataset(tmp_path / "libfm").name == 'we"ird'
    mercari(tmp_path / "tables")
    text = (tmp_path / "tables" / "categories.csv").read_text().replace("Books", "Books/Music")
    (tmp_path / "tables" / "categories.csv").write_text(text)
    folder = get_dataset("mercari", tmp_path, files=[tmp_path / "tables"], category="books/music")
    assert folder == tmp_path / "mercari-books-music"
    (tmp_path / "big.libfm").write_text(f"1 {2**63}:1 5:1\n")
    with pytest.raises(DataError, match="too large"):
        read_libfm(tmp_path / "big.libfm")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 2), ("no", 2)])
def test_a_person_is_asked_to_accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    movielens(tmp_path / "made")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    archive = str(tmp_path / "made" / "ml-1m.zip")
    assert main(["data", "get", "ml-1m", "--from", archive, "--any-checksum", "--data-root", str(tmp_path)]) == code
    assert (tmp_path / "ml-1m").exists() == (code == 0)
