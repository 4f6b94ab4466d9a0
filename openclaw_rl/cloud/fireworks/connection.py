"""A session of the SDK's for each adapter that is served or trained, and the SDK's errors as ours.

    ROOT/v1/accounts                                  whose key it is
    ROOT/training/v1/serverless/api/v1/…              sessions, runs, futures
    ROOT/training/v1/serverless/inference/v1/…        completions with a snapshot of a session

What samplers are given lives as long as its session, which holds one adapter of a shape: so each adapter has its
own, and what lasts is the state that `save_state` wrote. The SDK's telemetry is off, as it is everywhere here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from typing import Any

from openclaw_rl.cloud.link import Link, first_line
from openclaw_rl.cloud.service import Access
from openclaw_rl.errors import CloudError, ConfigError

_log = logging.getLogger(__name__)

_ROOT = "https://api.fireworks.ai"
_LOOK_S = 5.0
_UNPAID = "{place} asks for payment before it goes on (status 402): see its billing page"
_FROM_STATUS = {401: "key", 403: "key", 402: "billing", 404: "missing", 410: "missing", 429: "busy", 425: "busy"}


def import_sdk() -> Any:
    """`ConfigError` with the command where it is not installed."""
    os.environ["TINKER_TELEMETRY"] = "0"  # the name that the SDK took over
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from fireworks.training import sdk

            sdk.FiretitanServiceClient  # noqa: B018  its parts are imported when they are named
    except ImportError as error:
        raise ConfigError(
            f"the training part of the Fireworks SDK cannot be imported ({error}): pip install --target "
            "~/fireworks-sdk 'fireworks-ai[training-sdk]', and name that folder with training.cloud.sdk_path; it needs "
            "an older pydantic than the gateway"
        ) from None
    return sdk


class FireworksLink(Link):
    """Makes sessions, and knows what went wrong in them."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.sdk = import_sdk()
        self.root = (access.url or _ROOT).rstrip("/")

    async def session(self) -> Any:
        """The SDK's service client, which is one session."""
        access = self.access
        made = await self.asked(
            lambda: self.sdk.FiretitanServiceClient(
                base_url=f"{self.root}/training/v1/serverless", api_key=access.key, managed_base_url=self.root
            )
        )
        if await self.asked(lambda: made.training_session_name) is None:  # it needs the account, and hides why not
            raise CloudError(f"{access.place} does not say whose the key is; it is asked again later", kind="away")
        return made

    async def end(self, session: Any) -> None:
        """Gives its place back. What cannot be said is not waited for: a silent session ends by itself."""
        try:
            await self.asked(session.delete_training_session)
        except CloudError as error:
            _log.info("a session was left to end by itself", extra={"reason": str(error)})
        await asyncio.to_thread(session.close)

    async def account(self) -> str:
        """Whose the key is; `CloudError` of kind `key` if nobody's."""

        def look() -> str:
            with self.sdk.FireworksClient(api_key=self.access.key, base_url=self.root) as client:
                return str(client.account_id)

        return str(await self.asked(look))

    async def is_there(self) -> bool:
        import httpx  # the SDK brings it

        try:
            async with httpx.AsyncClient(timeout=_LOOK_S) as plain:
                answer = await plain.get(f"{self.root}/v1/accounts", headers={"X-API-Key": self.access.key})
        except httpx.HTTPError:
            return False
        if answer.status_code == 402:
            raise CloudError(_UNPAID.format(place=self.access.place), kind="billing")
        return answer.status_code < 500

    def explained(self, error: Exception) -> CloudError:
        place, status = self.access.place, _status(error)
        if isinstance(error, self.sdk.APIConnectionError | TimeoutError | ConnectionError) or _is_transport(error):
            return CloudError(
                f"{place} cannot be reached; look at the network, or at training.fireworks_url", kind="away"
            )
        kind = _FROM_STATUS.get(status or 0)
        if kind == "key":
            return CloudError(
                f"{place} refuses the key (status {status}): set FIREWORKS_API_KEY to one of your own that may train",
                kind="key",
            )
        if kind == "billing":
            return CloudError(_UNPAID.format(place=place), kind=kind)
        if kind is not None:
            return CloudError(f"{place}: {first_line(error)}", kind=kind)
        if status is not None and status >= 500:
            return CloudError(f"{place} fails (status {status}); it is asked again later", kind="away")
        if status is not None or isinstance(error, NotImplementedError):
            return CloudError(f"{place} refuses a request: {first_line(error)}", kind="refused")
        return CloudError(f"{place}: {first_line(error)}", kind="failed")


def _status(error: BaseException | None) -> int | None:
    """The SDK says it in several places, and wraps errors in others."""
    while error is not None:
        response = getattr(error, "response", None)
        for found in (
            getattr(error, "status_code", None),
            getattr(error, "final_status", None),
            getattr(response, "status_code", None),
        ):
            if isinstance(found, int):
                return found
        error = error.__cause__
    return None


def _is_transport(error: BaseException | None) -> bool:
    import httpx

    while error is not None:
        if isinstance(error, httpx.TransportError):
            return True
        error = error.__cause__
    return False
