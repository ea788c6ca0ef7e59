"""One contender in a process of its own: reads its task and then, line by line, for how many seconds to train."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from gmlfm.errors import GmlfmError


def main() -> None:
    import torch

    from gmlfm.bench.contenders import Contender, Task
    from gmlfm.bench.roofline import Sgemm, counted, measured

    try:
        contender = Contender(Task(**json.loads(sys.stdin.readline())))
        contender.run(0.0, time.perf_counter)  # compiles, and touches all memory once
    except GmlfmError as error:
        _send({"error": str(error)})
        return
    about = {"rows": contender.n_rows, "parts": counted(contender), "softmax_operations": contender.softmax_operations}
    _send(about | {"batch": contender.groups_per_step, "settings": contender.settings.to_dict()["settings"]})
    sgemm: Sgemm | None = None
    for request_line in sys.stdin:
        request = json.loads(request_line)
        if request == "rates":
            _send(measured(contender.task.device))
            continue
        if request == "sgemm":
            sgemm = sgemm or Sgemm(contender.task.device)
            _send(sgemm())
            continue
        busy = time.process_time()
        instances, seconds = contender.run(float(request), time.perf_counter)
        busy = time.process_time() - busy
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        reply = {"instances": instances, "seconds": seconds, "busy": busy, "peak": peak}
        if contender.task.device == "cuda":
            reply["peak_device"] = torch.cuda.max_memory_allocated()
        _send(reply)


def _send(reply: Any) -> None:
    """Standard output is the pipe to the process that measures."""
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
