"""One question to a service, in a process of its own: the control process imports no SDK.

    python -m openclaw_rl.cloud survey '{"service": "tinker", …}'          {"abilities": {…}}
    python -m openclaw_rl.cloud remove '{…}' URI …                         {}

What goes wrong is the answer {"error": "…", "kind": "away"}; kind `config` is for the person. The key is in the
environment.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any, NoReturn

from openclaw_rl.cloud.registry import make_service
from openclaw_rl.cloud.service import Access
from openclaw_rl.errors import CloudError, ConfigError


async def _answer(what: str, access: Access, names: list[str]) -> dict[str, Any]:
    service = make_service(access)
    try:
        if what == "survey":
            return {"abilities": (await service.survey()).to_json()}
        for name in names:
            await service.remove(name)
        return {}
    finally:
        await service.close()


def main() -> NoReturn:
    """The answer is the last line of standard output."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    what, access, *names = sys.argv[1:]
    asyncio.run(_tell(what, Access.from_json(json.loads(access)), names))
    raise AssertionError("it has ended")


async def _tell(what: str, access: Access, names: list[str]) -> None:
    try:
        answer = await _answer(what, access, names)
    except ConfigError as error:
        answer = {"error": str(error), "kind": "config"}
    except CloudError as error:
        answer = {"error": str(error), "kind": error.kind}
    print(json.dumps(answer), flush=True)  # noqa: T201  the answer
    os._exit(0)  # the SDK's threads may try on for minutes, and asyncio would wait for them


if __name__ == "__main__":
    main()
