"""A market of any size, generated and prepared: time and the most memory that was resident.

python benchmarks/larger_than_memory.py --purchases 50000000 --folder DIR [--keep]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

from gmlfm.data.schema import Schema
from gmlfm.data.sources.bazaar import Market, write_bazaar
from gmlfm.data.sources.preparing import prepare


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def size_gib(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--purchases", type=int, default=50_000_000)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="leave the folder's content")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    market = Market(n_users=max(1, options.purchases // 12), n_purchases=options.purchases)
    started = time.perf_counter()
    write_bazaar(market, folder / "bazaar")
    generated = time.perf_counter()
    size = size_gib(folder / "bazaar")
    print(f"generated {market.n_purchases:,} purchases in {generated - started:,.0f} s, {size:.2f} GiB on disk", flush=True)
    print(f"peak resident memory so far {peak_gib():.2f} GiB", flush=True)
    step, step_started = "", generated

    def report(name: str, n_done: int, n_all: int) -> None:
        nonlocal step, step_started
        if name != step:
            now = time.perf_counter()
            if step:
                print(f"{step:>24} {now - step_started:8.0f} s", flush=True)
            step, step_started = name, now

    prepared = prepare(
        Schema.from_toml(folder / "bazaar" / "dataset.toml"), folder / "bazaar", folder / "prepared", progress=report
    )
    print(f"{step:>24} {time.perf_counter() - step_started:8.0f} s")
    info = prepared.info
    print(
        f"prepared {info.n_interactions:,} interactions, {info.n_users:,} users, {info.n_items:,} items in "
        f"{time.perf_counter() - generated:,.0f} s, {prepared.n_shards} shards, {size_gib(folder / 'prepared'):.2f} GiB on disk"
    )
    print(f"peak resident memory {peak_gib():.2f} GiB")
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
