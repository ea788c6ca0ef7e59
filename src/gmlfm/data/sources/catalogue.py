"""The datasets we know by name: what each is, under which terms, and where its files come from."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
class Source:
    """One name. `folder` is where its files lie under a data root; `url` and `md5` where they can be downloaded."""

    about: str
    folder: str
    terms: str | None = None
    url: str | None = None
    md5: str | None = None
    megabytes: float = 0.0
    described: bool = False  # the package holds a dataset.toml for the files as they are
    needs: str = ""  # what --from takes when nothing can be downloaded
    raw: str = ""  # the word in the names of Amazon's files


_MOVIELENS = "https://files.grouplens.org/datasets/movielens"
_AMAZON = "reviews_{0}_5.json.gz and, for attributes, meta_{0}.json.gz"

_ML_1M = Source(
    "MovieLens 1M with the paper's six fields, genres as one joined string",
    "ml-1m",
    _MOVIELENS_TERMS,
    f"{_MOVIELENS}/ml-1m.zip",
    "c4d9eecfca2ab87c1945afe126590906",
    5.9,
    described=True,
)

SOURCES: dict[str, Source] = {
    "bazaar": Source("a made-up second-hand market of any size, built in", "bazaar"),
    "ml-1m": _ML_1M,
    "ml-1m-set": replace(_ML_1M, about="MovieLens 1M with genres as a set (the files of ml-1m)"),
    "ml-100k": Source(
        "MovieLens 100K, genres as one joined string",
        "ml-100k",
        _MOVIELENS_TERMS,
        f"{_MOVIELENS}/ml-100k.zip",
        "0e33842e24a9c977be4e0107933c0723",
        4.9,
    ),
    "amazon-auto": Source(
        "Amazon Automotive, 5-core",
        "amazon-auto",
        _AMAZON_TERMS,
        described=True,
        needs=_AMAZON.format("Automotive"),
        raw="Automotive",
    ),
    "amazon-office": Source(
        "Amazon Office Products, 5-core",
        "amazon-office",
        _AMAZON_TERMS,
        described=True,
        needs=_AMAZON.format("Office_Products"),
        raw="Office_Products",
    ),
    "amazon-clothing": Source(
        "Amazon Clothing, Shoes and Jewelry, 5-core",
        "amazon-clothing",
        _AMAZON_TERMS,
        described=True,
        needs=_AMAZON.format("Clothing_Shoes_and_Jewelry"),
        raw="Clothing_Shoes_and_Jewelry",
    ),
    "mercari": Source(
        "the paper's second-hand trading tables, one root category",
        "mercari",
        _MERCARI_TERMS,
        needs="a folder with categories, items and purchases",
    ),
    "libfm": Source("a libFM or svmlight file, user first and item second", "libfm", needs="the file"),
}
