"""One side in a process of its own: reads its task and then, line by line, for how many seconds to train."""

from __future__ import annotations

import json
import resource
import sys
import time

from gmlfm.errors import GmlfmError


def main() -> None:
    import torch

    from gmlfm.bench.contenders import Side, Task
    from gmlfm.bench.roofline import counted, measured

    try:
        side = Side(Task(**json.loads(sys.stdin.readline())))
        side.run(0.0, time.perf_counter)  # compiles, and touches all memory once
    except GmlfmError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"ready": True, "rows": side.n_rows, "parts": counted(side)}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked == "rates":
            print(json.dumps(measured(side.task.device)), flush=True)
            continue
        instances, seconds = side.run(float(asked), time.perf_counter)
        unit = 1 if sys.platform == "darwin" else 1024
        told = {"instances": instances, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
        if side.task.device == "cuda":
            told["peak_device"] = torch.cuda.max_memory_allocated()
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
