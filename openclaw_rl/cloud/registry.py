"""The services by name: one line for each."""

from __future__ import annotations

from openclaw_rl.cloud.service import Access, Service


def make_service(access: Access) -> Service:
    """In a worker: this imports the SDK."""
    if access.service == "fireworks":
        from openclaw_rl.cloud.fireworks.service import FireworksService

        return FireworksService(access)
    from openclaw_rl.cloud.tinker.service import TinkerService

    return TinkerService(access)
