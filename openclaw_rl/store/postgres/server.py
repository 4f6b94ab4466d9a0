"""What of a PostgreSQL server's settings a store depends on. Blocking; reads only."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.store.postgres.connection import connect, told_of_server


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresFacts:
    """`unsafe` names the settings under which an acknowledged turn may be lost with the machine's power."""

    version: str
    num_connections: int
    max_connections: int
    unsafe: tuple[str, ...]
    is_replica: bool


def server_facts(url: str) -> PostgresFacts:
    """StoreError in one sentence if it cannot be asked."""
    with told_of_server("the store on PostgreSQL cannot be read"):
        connection = connect(url, reads_only=True)
        try:

            def ask(query: str) -> object:
                return connection.exec_driver_sql(query).scalar()

            names = ("fsync", "full_page_writes")
            return PostgresFacts(
                version=str(ask("SHOW server_version")),
                num_connections=int(str(ask("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL"))),
                max_connections=int(str(ask("SHOW max_connections"))),
                unsafe=tuple(name for name in names if ask(f"SHOW {name}") == "off"),
                is_replica=bool(ask("SELECT pg_is_in_recovery()")),
            )
        finally:
            connection.close()
