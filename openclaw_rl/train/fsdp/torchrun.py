"""torchrun's arguments -> torchrun, which ends with status 1 when its processes were refused.

    python -m openclaw_rl.train.fsdp.torchrun --standalone --nproc-per-node 8 … -m openclaw_rl.train.fsdp --join …

torchrun starts processes again that fail, and ends well when they end well. Ours have no end but one: the system that
they train for does not want them (`__main__.refuse`).
"""

from __future__ import annotations

import sys
from typing import NoReturn

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import main as torchrun


def main() -> NoReturn:
    """Never ends with status 0."""
    try:
        torchrun()
    except SignalException as error:
        sys.exit(128 + error.sigval)  # whoever ends it wants no traceback
    sys.exit(1)


if __name__ == "__main__":
    main()
