from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gmlfm.cli import main
from gmlfm.data.sources.bazaar import Market, write_bazaar

QUICK = ["--set", "k=4", "--set", "epochs=1", "--threads", "1"]


@pytest.fixture(scope="session")
def market(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a market of 120 buyers. Read-only."""
    folder = tmp_path_factory.mktemp("cli") / "market"
    write_bazaar(Market(n_users=120, n_purchases=1_200), folder)
    return str(folder)


@pytest.fixture(scope="session")
def run(market: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of gml-fm on the market. Read-only."""
    out = str(tmp_path_factory.mktemp("cli") / "run")
    assert main(["train", market, "--out", out, *QUICK]) == 0
    return out


@pytest.fixture(scope="session")
def plain_run(market: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of gml-fm on the market that reads no histories. Read-only."""
    out = str(tmp_path_factory.mktemp("plain") / "run")
    assert main(["train", market, "--out", out, *QUICK, "--set", "history=none"]) == 0
    return out


@pytest.fixture(scope="session")
def history_run(market: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of fm on the market that reads what users did before. Read-only."""
    out = str(tmp_path_factory.mktemp("history") / "run")
    more = ["--model", "fm", "--set", "history=last,recent,past", "--set", "v_scale=0.3"]
    assert main(["train", market, "--out", out, *QUICK, *more]) == 0
    return out


@pytest.fixture
def own_run(run: str, tmp_path: Path) -> str:
    """A copy of the run that a test may change."""
    return str(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture
def own_plain_run(plain_run: str, tmp_path: Path) -> str:
    """A copy of the run that reads no histories, which a test may change."""
    return str(shutil.copytree(plain_run, tmp_path / "plain"))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with two tables and no description yet."""
    rows = [f"{n % 6},p{n % 9},{n}" for n in range(90)]
    (tmp_path / "orders.csv").write_text("customer,product,when\n" + "\n".join(rows) + "\n")
    products = [f"p{n},{'red' if n % 2 else 'blue'}" for n in range(10)]
    (tmp_path / "products.csv").write_text("product,colour\n" + "\n".join(products) + "\n")
    return tmp_path


@pytest.fixture(scope="session")
def context_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of data with a context field, `daytime`, users 0 to 5 and items p0 to p8. Read-only."""
    folder = tmp_path_factory.mktemp("context")
    orders = [f"{n % 6},p{(n * 5 + n % 7) % 9},{n},{'morning' if n % 2 else 'evening'}" for n in range(60)]
    (folder / "orders.csv").write_text("customer,product,when,daytime\n" + "\n".join(orders) + "\n")
    columns = 'path = "orders.csv"\nuser = "customer"\nitem = "product"\ntime = "when"\n'
    (folder / "dataset.toml").write_text(f'[interactions]\n{columns}context = {{ daytime = "category" }}\n')
    out = str(folder / "run")
    assert main(["train", str(folder), "--out", out, *QUICK, "--set", "v_scale=0.5"]) == 0
    return out
