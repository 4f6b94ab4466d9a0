"""The SDK's client, and its errors as ours.

The SDK waits an hour for a payment; here a service that asks for money says so at once. The SDK's own telemetry is off:
with an error it would send request headers to its makers, and the key is one of them.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from typing import Any

from openclaw_rl.cloud.link import Link, first_line
from openclaw_rl.cloud.service import Access
from openclaw_rl.errors import CloudError, ConfigError

_LOOK_S = 5.0
_UNPAID = "{place} asks for payment before it goes on (status 402): see its billing page"
_FROM_STATUS = {401: "key", 403: "key", 402: "billing", 404: "missing", 410: "missing", 429: "busy", 425: "busy"}


def import_sdk() -> Any:
    """`ConfigError` with the command where it is not installed."""
    os.environ["TINKER_TELEMETRY"] = "0"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tinker
    except ImportError as error:
        raise ConfigError(
            f"the Tinker SDK cannot be imported ({error}): pip install 'openclaw-rl[tinker]', or name a folder that "
            "has it with training.cloud.sdk_path"
        ) from None
    return tinker


class TinkerLink(Link):
    """One session with a service. `service` is the SDK's client; made again after the service forgot it."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.sdk = import_sdk()
        self._client: Any = None
        self._making = asyncio.Lock()

    async def client(self) -> Any:
        async with self._making:
            if self._client is None:
                access = self.access
                made = await self.asked(
                    lambda: self.sdk.ServiceClient(base_url=access.url, api_key=access.key, project_id=access.project)
                )
                await self.asked(lambda: made.holder)  # the session is made here
                self._client = made
            return self._client

    def forget(self, client: Any) -> None:
        """The service knows this session no more: the next question makes another."""
        if self._client is client:
            self._client = None

    async def is_there(self) -> bool:
        """Whether it answers a plain question at all; `CloudError` if it asks for money instead."""
        import httpx  # the SDK brings it

        url = (self.access.url or default_url()).rstrip("/")
        try:
            async with httpx.AsyncClient(timeout=_LOOK_S) as plain:
                answer = await plain.get(
                    f"{url}/api/v1/get_server_capabilities", headers={"X-API-Key": self.access.key}
                )
        except httpx.HTTPError:
            return False
        if answer.status_code == 402:
            raise CloudError(_UNPAID.format(place=self.access.place), kind="billing")
        return answer.status_code < 500

    def explained(self, error: Exception) -> CloudError:
        """An error of the SDK's as one sentence with the remedy. What it quotes of a request is not repeated."""
        place, sdk = self.access.place, self.sdk
        status = getattr(error, "status_code", None)
        if status is None and (found := getattr(error.__cause__, "status_code", None)) is not None:
            status = found
        if isinstance(error, sdk.APIConnectionError | TimeoutError | ConnectionError):
            return CloudError(f"{place} cannot be reached; look at the network, or at training.tinker_url", kind="away")
        kind = _FROM_STATUS.get(status or 0)
        if kind == "key":
            return CloudError(
                f"{place} refuses the key (status {status}): set TINKER_API_KEY to one of your own, which begins "
                "with tml-",
                kind="key",
            )
        if kind == "billing":
            return CloudError(_UNPAID.format(place=place), kind=kind)
        if kind is not None:
            return CloudError(f"{place}: {first_line(error)}", kind=kind)
        if status is not None and status >= 500:
            return CloudError(f"{place} fails (status {status}); it is asked again later", kind="away")
        if "poisoned" in str(error):
            return CloudError(f"{place}: an earlier request failed, so that the run begins anew", kind="missing")
        if status is not None:
            return CloudError(f"{place} refuses a request: {first_line(error)}", kind="refused")
        if isinstance(error, sdk.TinkerError | ValueError | RuntimeError):
            text = str(error)
            gone = "unknown" in text and ("session" in text or "model" in text or "request" in text)
            return CloudError(f"{place}: {first_line(error)}", kind="missing" if gone else "failed")
        return CloudError(f"{place}: {type(error).__name__}: {first_line(error)}", kind="failed")

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and hasattr(client.holder, "aclose"):
            await asyncio.to_thread(client.holder.close)


def default_url() -> str:
    """Where the SDK goes by itself."""
    from tinker.lib.base_url import resolve_base_url

    return str(resolve_base_url(None))
