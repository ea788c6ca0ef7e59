"""MovieLens 100K: its genre flags become one joined string and a set. (MovieLens 1M is read from its archive as it is.)"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.tables import read_table
from gmlfm.errors import DataError
from gmlfm.storage import new_folder

_GENRES: tuple[str, ...] = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
)
_GENRES += ("Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western")
ML_1M_MEMBERS = ("ml-1m/ratings.dat", "ml-1m/users.dat", "ml-1m/movies.dat")
ML_100K_MEMBERS = ("ml-100k/u.data", "ml-100k/u.user", "ml-100k/u.item")

_TOML = """# MovieLens 100K with the fields that the paper uses of MovieLens 1M: genres as one joined string.
name = "ml-100k"

[interactions]
path = "ratings.parquet"
user = "user"
item = "movie"
time = "timestamp"
label = "rating"

[users]
path = "users.parquet"
id = "user"
fields = { gender = "category", age = "number", occupation = "category" }

[items]
path = "movies.parquet"
id = "movie"
fields = { genres = "category" }
# genres as a set: fields = { genre_set = "set" }
title = "title"
"""


def convert_100k(archive: Path, folder: Path) -> None:
    """ml-100k.zip -> Parquet tables and a dataset.toml."""

    def member(name: str, separator: str, columns: tuple[str, ...]) -> pl.DataFrame:
        options = ReadOptions(separator=separator, encoding="latin-1", quote="", null=("",), columns=columns)
        return read_table(f"{archive.name}!ml-100k/{name}", archive.parent, options).frame

    films = member("u.item", "|", ("movie", "title", "released", "video", "url", *_GENRES))
    flags = [pl.when(pl.col(genre) == "1").then(pl.lit(genre)) for genre in _GENRES]
    films = films.select("movie", "title", pl.concat_list(flags).list.drop_nulls().alias("genre_set"))
    films = films.with_columns(pl.col("genre_set").list.join("|").alias("genres"))
    ratings = member("u.data", "\t", ("user", "movie", "rating", "timestamp"))
    with new_folder(folder, holds=("ratings.parquet", "users.parquet", "movies.parquet", "dataset.toml")) as new:
        try:
            ratings = ratings.with_columns(pl.col("rating").cast(pl.Float64), pl.col("timestamp").cast(pl.Int64))
        except pl.exceptions.InvalidOperationError as error:
            raise DataError(f"{archive}!ml-100k/u.data holds a rating or time that is no number.") from error
        ratings.write_parquet(new / "ratings.parquet")
        member("u.user", "|", ("user", "age", "gender", "occupation", "zip")).write_parquet(new / "users.parquet")
        films.write_parquet(new / "movies.parquet")
        (new / "dataset.toml").write_text(_TOML, encoding="utf-8")
