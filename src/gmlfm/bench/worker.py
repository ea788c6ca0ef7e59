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
    from gmlfm.bench.roofline import counted, measured

    try:
        contender = Contender(Task(**json.loads(sys.stdin.readline())))
        contender.run(0.0, time.perf_counter)  # compiles, and touches all memory once
    except GmlfmError as error:
        _send({"error": str(error)})
        return
    _send({"rows": contender.n_rows, "parts": counted(contender)})
    for request_line in sys.stdin:
        request = json.loads(request_line)
        if request == "rates":
            _send(measured(contender.task.device))
            continue
        instances, seconds = contender.run(float(request), time.perf_counter)
        unit = 1 if sys.platform == "darwin" else 1024
        reply = {"instances": instances, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
        if contender.task.device == "cuda":
            reply["peak_device"] = torch.cuda.max_memory_allocated()
        _send(reply)


def _send(reply: Any) -> None:
    """Standard output is the pipe to the process that measures."""
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
