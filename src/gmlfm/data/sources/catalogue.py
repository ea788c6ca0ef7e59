"""The datasets that can be had by name: what each is, under which terms, where its files come from, how they are checked.

A new source is one entry in SOURCES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gmlfm.data.sources.amazon import NEEDED_FILES, amazon_files, convert_amazon
from gmlfm.data.sources.archives import check_archive
from gmlfm.data.sources.libfm import convert_libfm
from gmlfm.data.sources.mercari import convert_mercari
from gmlfm.data.sources.movielens import ML_1M_MEMBERS, ML_100K_MEMBERS, convert_100k

_MOVIELENS_TERMS = (
    "MovieLens data belong to GroupLens Research, University of Minnesota. They may be used for research with "
    "acknowledgement; they may not be redistributed, nor used for commercial purposes, without GroupLens' permission. "
    "The README inside the archive is what holds."
)
_AMAZON_TERMS = (
    "Amazon product data (2014) were collected by J. McAuley, UC San Diego, and are offered for research; reviews remain "
    "their authors' and Amazon's. Cite the collectors' papers when you publish results."
)
_MERCARI_TERMS = (
    "These are your own files: the Mercari tables of the paper were never published. Use them as their owner allows."
)


@dataclass(frozen=True)
class Request:
    """The local files of a source (a downloaded archive is the only one), and the folder to make from them."""

    files: Sequence[Path]
    folder: Path
    category: str = ""


@dataclass(frozen=True)
class Source:
    """A dataset with a name. `folder` is where its files lie under a data root; `url` and `md5` where they are downloaded.

    check: refuses an archive that is not what the source publishes; by default any undamaged and harmless zip archive passes.
    convert: makes the folder, with a dataset.toml; without it the archive is put there unchanged, as FOLDER.zip.
    """

    about: str
    folder: str
    terms: str | None = None
    url: str | None = None
    md5: str | None = None
    megabytes: float = 0.0
    described: bool = False  # the package holds a dataset.toml for the files as they are
    needs: str = ""  # what --from takes when nothing can be downloaded
    check: Callable[[Path], None] = check_archive
    convert: Callable[[Request], None] | None = None
    category_example: str = ""  # where only one category is converted, which --category names: a likely one


_MOVIELENS = "https://files.grouplens.org/datasets/movielens"

_ML_1M = Source(
    "MovieLens 1M with the paper's six fields, genres as one joined string",
    "ml-1m",
    _MOVIELENS_TERMS,
    f"{_MOVIELENS}/ml-1m.zip",
    "c4d9eecfca2ab87c1945afe126590906",
    5.9,
    described=True,
    check=partial(check_archive, needed=ML_1M_MEMBERS),
)


def _amazon(name: str, about: str, category: str) -> Source:
    return Source(
        about,
        name,
        _AMAZON_TERMS,
        described=True,
        needs=NEEDED_FILES.format(category),
        convert=lambda request: convert_amazon(name, *amazon_files(name, category, request.files), request.folder),
    )


SOURCES: dict[str, Source] = {
    "bazaar": Source("a made-up second-hand market of any size, built in", "bazaar"),
    "bazaar-v2": Source("the same market without habits, as it was before", "bazaar-v2"),
    "ml-1m": _ML_1M,
    "ml-1m-set": replace(_ML_1M, about="MovieLens 1M with genres as a set (the files of ml-1m)"),
    "ml-100k": Source(
        "MovieLens 100K, genres as one joined string",
        "ml-100k",
        _MOVIELENS_TERMS,
        f"{_MOVIELENS}/ml-100k.zip",
        "0e33842e24a9c977be4e0107933c0723",
        4.9,
        check=partial(check_archive, needed=ML_100K_MEMBERS),
        convert=lambda request: convert_100k(request.files[0], request.folder),
    ),
    "amazon-auto": _amazon("amazon-auto", "Amazon Automotive, 5-core", "Automotive"),
    "amazon-office": _amazon("amazon-office", "Amazon Office Products, 5-core", "Office_Products"),
    "amazon-clothing": _amazon("amazon-clothing", "Amazon Clothing, Shoes and Jewelry, 5-core", "Clothing_Shoes_and_Jewelry"),
    "mercari": Source(
        "the paper's second-hand trading tables, one root category",
        "mercari",
        _MERCARI_TERMS,
        needs="a folder with categories, items and purchases",
        convert=lambda request: convert_mercari(request.files[0], request.category, request.folder),
        category_example="Ticket",
    ),
    "libfm": Source(
        "a libFM or svmlight file, user first and item second",
        "libfm",
        needs="the file",
        convert=lambda request: convert_libfm(request.files[0], request.folder),
    ),
}
