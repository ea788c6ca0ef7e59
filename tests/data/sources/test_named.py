from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import pytest

from gmlfm import load_dataset
from gmlfm.data.schema import Schema
from gmlfm.data.sources.catalogue import SOURCES
from gmlfm.data.sources.named import description
from gmlfm.errors import DataError, GmlfmError


def movielens(folder: Path) -> None:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/ratings.dat", "1::10::5::978300760\n1::11::3::978302109\n2::10::4::978301968\n")
        archive.writestr("ml-1m/users.dat", "1::F::1::10::48067\n2::M::56::16::70072\n")
        films = "10::Amélie (2001)::Comedy|Romance\n11::Heat (1995)::Action\n12::Seven: a tale (1995)::Action|Crime\n"
        archive.writestr("ml-1m/movies.dat", films.encode("latin-1"))


def test_movielens_is_read_from_its_archive(tmp_path: Path) -> None:
    movielens(tmp_path / "ml-1m")
    data = load_dataset("ml-1m", data_root=tmp_path)
    assert (data.n_interactions, len(data.seen_items), len(data.items)) == (3, 2, 3)
    assert data.items.fields["genres"].to_list() == ["Comedy|Romance", "Action", "Action|Crime"]
    assert data.items.titles is not None
    assert data.items.titles[0] == "Amélie (2001)"
    as_set = load_dataset("ml-1m-set", data_root=tmp_path)
    assert as_set.items.fields["genres"].to_list()[0] == ["Comedy", "Romance"]


@pytest.mark.parametrize("name", ["amazon-auto", "amazon-office", "amazon-clothing"])
def test_the_amazon_folders_are_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "interactions.tsv.gz").write_bytes(gzip.compress(b"user\titem\ttime\n1\tA\t0\n1\tB\t1\n"))
    (tmp_path / name / "items.tsv.gz").write_bytes(
        gzip.compress(b"item\tcategory\tcategories\tbrand\nA\t6\tShoes, all|Women\t\nB\t7\tMen\t3\n")
    )
    monkeypatch.setenv("GMLFM_DATA", str(tmp_path))
    data = load_dataset(name)
    assert data.n_interactions == 2
    if name == "amazon-clothing":
        assert data.items.fields["categories"].to_list() == [["Shoes, all", "Women"], ["Men"]]


def test_every_name_has_its_description() -> None:
    for name in [name for name, source in SOURCES.items() if source.described]:
        assert Schema.from_toml(description(name)).name == name


def test_a_folder_a_toml_and_a_name_under_a_root(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "e.csv").write_text("u,i\n1,a\n2,b\n")
    (folder / "dataset.toml").write_text('name = "mine"\n[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\n')
    hashes = {
        load_dataset(folder).content_hash,
        load_dataset(folder / "dataset.toml").content_hash,
        load_dataset("mine", data_root=tmp_path).content_hash,
    }
    assert len(hashes) == 1


def test_missing_datasets_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the files of 'ml-1m' are not in .*gmlfm data get ml-1m"):
        load_dataset("ml-1m", data_root=tmp_path)
    with pytest.raises(DataError, match=r"neither a folder, a \.toml file nor a known dataset .*did you mean 'ml-1m'\?"):
        load_dataset("ml1m", data_root=tmp_path)
    with pytest.raises(DataError, match=r"holds no dataset\.toml; write one with: gmlfm init"):
        load_dataset(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        load_dataset("ml-1m", data_root=tmp_path / "gone")


@pytest.mark.parametrize("name", ["a\0b", "a" * 300, "é" * 200, "\ud800", "a\0b.toml", "/".join(["a" * 200] * 30)])
def test_names_that_no_file_can_have_are_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be a file's name|is too long for a name or a path"):
        load_dataset(name)
    with pytest.raises(DataError, match=r"cannot be a file's name|is too long for a name or a path"):
        load_dataset("shop", data_root=name)
    (tmp_path / "dataset.toml").write_text(f'[interactions]\npath = {json.dumps(name)}\nuser = "u"\nitem = "i"\n')
    with pytest.raises(GmlfmError, match=r"cannot be a file's name|expected text in quotes|is not a valid TOML file"):
        load_dataset(tmp_path)
