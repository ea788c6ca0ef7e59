"""`gmlfm data prepare`: any dataset into encoded shards with bounded memory, resumable.

An id must meet its table row although neither table fits in memory, so rows are dealt into buckets by their ids' checksum
(all of an id's rows in one bucket), and each bucket is joined alone:

    deal items, users and interactions  ->  number the items of a bucket, pass its interactions on by user
    ->  number the users of a bucket, merge repeats, split  ->  learn the vocabularies  ->  encode, bucket by bucket

Every step writes a folder or file of its own under `.work` by rename, and is passed over when it is there.
"""

from __future__ import annotations

from gmlfm.data.sources.preparing.run import prepare

__all__ = ["prepare"]
