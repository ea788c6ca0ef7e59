"""SIGKILL a training at random moments, resume it, and compare the final weight files byte by byte.

python benchmarks/kills.py --kills 10
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gmlfm.data.sources.bazaar import Market, write_bazaar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_bazaar(Market(n_users=2_000, n_purchases=24_000), folder / "market")

        def command(run: str, *more: str) -> list[str]:
            settings = ["--set", "epochs=6", "--set", "patience=9", "--set", "k=16", "--threads", "1"]
            return [
                sys.executable,
                "-m",
                "gmlfm",
                "train",
                str(folder / "market"),
                "--out",
                str(folder / run),
                *settings,
                *more,
            ]

        def checksum(run: str) -> str:
            return hashlib.sha256((folder / run / "model" / "weights.safetensors").read_bytes()).hexdigest()[:16]

        started = time.perf_counter()
        subprocess.run(command("uninterrupted"), check=True, capture_output=True)
        seconds = time.perf_counter() - started
        print(f"uninterrupted: {checksum('uninterrupted')} in {seconds:.1f} s")
        rng, n_identical = random.Random(options.seed), 0
        for number in range(options.kills):
            process = subprocess.Popen(command(f"run{number}"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            moment = seconds * rng.random()
            time.sleep(moment)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            epochs = len(list((folder / f"run{number}").glob("checkpoints/epoch-*.json")))
            subprocess.run(command(f"run{number}", "--resume"), check=True, capture_output=True)
            n_identical += checksum(f"run{number}") == checksum("uninterrupted")
            print(f"killed after {moment:5.1f} s ({epochs} checkpoints), resumed: {checksum(f'run{number}')}")
        print(f"{n_identical} of {options.kills} identical")


if __name__ == "__main__":
    main()
