"""`gmlfm data prepare`: any dataset into encoded shards with bounded memory, resumable.

Ids must be joined with their table rows although neither table fits in memory, so rows are partitioned into buckets by
the checksum of their ids (all rows of an id in one bucket), and each bucket is joined alone:

    partition items, users and interactions  ->  number the items of a bucket, partition its interactions by user
    ->  number the users of a bucket, merge repeats  ->  choose the split  ->  learn the vocabularies
    ->  encode, bucket by bucket

Every step writes a folder or file of its own under `.work` by rename, and is skipped when that exists.
"""

from __future__ import annotations

from gmlfm.data.sources.preparing.run import prepare
from gmlfm.data.sources.preparing.splitting import PREPARED_SPLITS

__all__ = ["PREPARED_SPLITS", "prepare"]
