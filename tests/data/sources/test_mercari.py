from __future__ import annotations

from pathlib import Path

import pytest

from gmlfm import load_dataset
from gmlfm.data.sources.fetch import get_dataset
from gmlfm.errors import DataError, OptionError


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


def test_an_odd_category_still_names_a_folder(tmp_path: Path) -> None:
    mercari(tmp_path / "tables")
    text = (tmp_path / "tables" / "categories.csv").read_text().replace("Books", "Books/Music")
    (tmp_path / "tables" / "categories.csv").write_text(text)
    folder = get_dataset("mercari", tmp_path, files=[tmp_path / "tables"], category="books/music")
    assert folder == tmp_path / "mercari-books-music"
