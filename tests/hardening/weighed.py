"""`openclaw-rl` that says what it weighs: whoever writes to DATA_DIR/weigh finds its memory in DATA_DIR/weight.

What is free is given back to the system first, so that two figures differ by what is kept.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from pathlib import Path

import psutil

from openclaw_rl.__main__ import main


def weigh(folder: Path) -> None:
    bell, told = folder / "weigh", folder / "weight"
    while True:
        bell.read_text()  # a pipe: returns when somebody has written
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        scratch = told.with_suffix(".new")
        scratch.write_text(str(psutil.Process().memory_info().rss))
        scratch.replace(told)


if __name__ == "__main__":
    data_dir = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    os.mkfifo(data_dir / "weigh", 0o600)
    threading.Thread(target=weigh, args=(data_dir,), daemon=True).start()
    main()
