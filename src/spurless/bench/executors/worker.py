"""A process that does trials: settings and trials come in as JSON lines, rows go out. Started by pool.py.

When its input ends (its parent has stopped, or was killed) it ends too, after the step that is running, with a
checkpoint.
"""

from __future__ import annotations

import _thread
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from spurless.bench.one import lost_its_gpu, run_one
from spurless.bench.trials import Trial, remember
from spurless.core.messages import show_messages


def main() -> None:
    show_messages()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print where they please
    stopping = threading.Event()
    # Not an exception: between two trials there is nothing to interrupt, and during one `fit` has a handler of its own.
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines, stopping), daemon=True).start()

    def reply(**what: Any) -> None:
        try:
            replies.write(json.dumps(what) + "\n")
            replies.flush()
        except OSError:
            os._exit(1)  # nobody is there any more

    first = lines.get()
    if first is None:
        return
    settings = json.loads(first)
    import torch

    import spurless.train.fit  # noqa: F401  (now, so that the first trial's time is its own)

    torch.set_num_threads(settings.pop("threads"))
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # torch imports more of itself, for seconds, at this point
    remember(Path(settings["out"]))
    reply(ready=True)
    while (line := lines.get()) is not None and not stopping.is_set():
        try:
            row = run_one(Trial(**json.loads(line)), **settings, wait=False)
        except KeyboardInterrupt as stop:
            reply(stopped=str(stop))
            break
        beyond_repair = row is not None and row["status"] == "failed" and lost_its_gpu()
        reply(row=row, last=beyond_repair)
        if beyond_repair:
            break
    # Not through the interpreter's own end: it takes a second, and trips over the thread that is still listening.
    sys.stderr.flush()
    os._exit(0)


def _listen(lines: queue.SimpleQueue[str | None], stopping: threading.Event) -> None:
    for line in sys.stdin:
        lines.put(line)
    stopping.set()
    lines.put(None)
    while True:  # as if Ctrl-C were pressed, until the main thread has noticed
        _thread.interrupt_main()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
