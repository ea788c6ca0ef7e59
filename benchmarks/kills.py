"""SIGKILL commands at random moments, go on, and compare what comes of it with what comes of it undisturbed.

python benchmarks/kills.py --kills 100
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gmlfm import Recommender
from gmlfm.cli import main as gmlfm
from gmlfm.data.sources.bazaar import Market, write_bazaar

USER, SOLD, SOLD_BEFORE = "b0000003", 5, 7  # the last two are positions in the catalogue
TRAIN = "train {market} --out {out} --model fm --set epochs=4 --set patience=9 --set k=8 --threads 1 --refit"
COMMANDS = {
    "train": TRAIN,
    "prepare": "data prepare {market} --out {out} --rows-in-memory 2000",
    "save": "",
    "forget": "forget {out} --user " + USER,
    "sold": "sold {out} {item}",
    "recommend --all": "recommend {run} --all --out {out}.parquet -n 5",
}
CODE = """
import sys
from gmlfm import Recommender
from gmlfm.cli import main
words = sys.argv[1:]
other = Recommender.load(words[1]) if words[0] == "save" else None
print("ready", flush=True)
if other is None:
    sys.exit(main(words))
other.save(words[2], force=True)
"""


def fingerprint(folder: Path) -> dict[str, str]:
    """The checksum of each file that a result consists of, by its name without the generation's."""
    skipped = ("log", "checkpoints", "report.html")
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.relative_to(folder).parts[0] not in skipped
    }


def state(name: str, out: Path) -> object:
    """What must be the same in the end."""
    if name == "recommend --all":
        return [hashlib.sha256(out.with_suffix(".parquet").read_bytes()).hexdigest()]
    if name == "prepare":
        return fingerprint(out)
    recommender = Recommender.load(out)
    model = recommender.fitted
    weights = {
        key: hashlib.sha256(value.numpy().tobytes()).hexdigest() for key, value in sorted(model.model.state_dict().items())
    }
    return weights, model.encoder.hash, model.data.content_hash, sorted(recommender.stock.marks.items())


def begin(name: str, folder: Path, out: Path) -> None:
    """The folder as it is before the command."""
    if name in ("save", "forget", "sold"):
        shutil.copytree(folder / "run", out)


def words_of(name: str, folder: Path, out: Path, item: str) -> list[str]:
    if name == "save":
        return ["save", str(folder / "other"), str(out)]
    return COMMANDS[name].format(market=folder / "market", run=folder / "run", out=out, item=item).split()


def started(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def killed(words: list[str], seconds: float) -> bool:
    """Whether the command was still at work when it was killed."""
    process = started(words)
    time.sleep(seconds)
    was_at_work = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return was_at_work


def finish(name: str, words: list[str], out: Path) -> None:
    """Go on as the documentation says."""
    if name == "save":
        Recommender.load(out)  # the old one or the new one
        Recommender.load(words[1]).save(out, force=True)
        return
    if name == "prepare" and (out / "prepared.json").exists() and not (out / ".work").exists():
        return
    is_gone = name == "forget" and Recommender.load(out).fitted.encoder.user_numbers([USER])[0] < 0
    done = subprocess.run(
        [sys.executable, "-m", "gmlfm", *words, *(["--resume"] if name == "train" else [])], capture_output=True, text=True
    )
    if done.returncode != 0 and not is_gone:
        raise SystemExit(f"{' '.join(words)} failed after a kill: {done.stderr}")


def leftovers(out: Path) -> list[str]:
    """Files of no use to anybody beside and in the result."""
    near = [*out.parent.glob(f".{out.name}*"), *out.parent.glob(f"{out.name}*.partial*")]
    return [str(path) for path in near] + [str(path) for path in out.rglob("*.tmp*")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_bazaar(Market(n_users=2_000, n_purchases=24_000), folder / "market")
        for run, seed in (("run", "0"), ("other", "1")):
            assert gmlfm([*TRAIN.format(market=folder / "market", out=folder / run).split(), "--set", f"seed={seed}"]) == 0
        ids = Recommender.load(folder / "run").fitted.data.items.ids
        assert gmlfm(["sold", str(folder / "run"), ids[SOLD_BEFORE]]) == 0
        expected, seconds = {}, {}
        for name in COMMANDS:
            out = folder / "undisturbed" / name.split()[0]
            out.parent.mkdir(exist_ok=True)
            begin(name, folder, out)
            process = started(words_of(name, folder, out, ids[SOLD]))
            clock = time.perf_counter()
            process.communicate()
            seconds[name] = time.perf_counter() - clock
            expected[name] = state(name, out)
        total = dict.fromkeys(COMMANDS, (0, 0, 0))
        for number in range(options.kills):
            name = list(COMMANDS)[number % len(COMMANDS)]
            out = folder / f"out-{number}"
            begin(name, folder, out)
            words = words_of(name, folder, out, ids[SOLD])
            was_at_work = killed(words, seconds[name] * rng.random())
            finish(name, words, out)
            is_same = state(name, out) == expected[name] and not leftovers(out)
            if name == "forget":
                is_same = is_same and not any(USER.encode() in path.read_bytes() for path in out.rglob("*") if path.is_file())
            n, n_at_work, n_same = total[name]
            total[name] = (n + 1, n_at_work + was_at_work, n_same + is_same)
            if not is_same:
                print(f"kill {number} ({name}) left a difference; {leftovers(out)}", flush=True)
            shutil.rmtree(out, ignore_errors=True)
        for name, (n, n_at_work, n_same) in total.items():
            print(
                f"{name:16} {seconds[name]:5.1f} s  {n:3} kills, {n_at_work:3} of them at work, {n_same:3} identical in the end"
            )
        print(json.dumps({"kills": options.kills, "identical": sum(same for *_, same in total.values())}))


if __name__ == "__main__":
    main()
