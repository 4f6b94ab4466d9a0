"""Settings -> what workers need to reach a service; and the questions that the control process itself has.

    DATA_DIR/cloud/survey.json       what the service could do when it was last looked at

The look is taken at each start. Where the service is away, what it could do the last time is believed, so that a start
in the middle of an outage comes up, and answers when the service does. Imports no SDK.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from openclaw_rl.cloud.bill import Prices, Till
from openclaw_rl.cloud.service import KEY_VARIABLES, Abilities, Access
from openclaw_rl.config import Config
from openclaw_rl.config.environment import worker_environment
from openclaw_rl.errors import CloudError, ConfigError
from openclaw_rl.types import Json

_LOOK_S = 180.0
_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDesk:
    """Where a service is, the key to it, and the folder of what we know of it."""

    access: Access
    key: str
    folder: Path
    prices: Prices
    sdk_path: Path | None = None
    is_agreed: bool = False
    """The settings say that their author knows what leaves the machine."""

    @classmethod
    def of(cls, config: Config) -> ServiceDesk:
        training, cloud = config.training, config.training.cloud
        if training.backend == "fireworks":
            url, key, project = training.fireworks_url, training.fireworks_api_key, None
        else:
            assert training.backend == "tinker", "nobody asks otherwise"
            url, key, project = training.tinker_url, training.tinker_api_key, training.tinker_project_id
        return cls(
            access=Access(
                service=training.backend,
                base_model=config.engine.served_model or config.model.name,
                url=None if url is None else url.rstrip("/"),
                project=project,
                patience_s=config.engine.wait_s,
                likely=max(training.top_k, training.teacher_top_k),
            ),
            key="" if key is None else key.get_secret_value(),
            folder=config.store.data_dir / "cloud",
            prices=Prices(
                prefill=cloud.price_prefill,
                cached=cloud.price_cached,
                sample=cloud.price_sample,
                train=cloud.price_train,
            ),
            sdk_path=cloud.sdk_path,
            is_agreed=cloud.consent,
        )

    @property
    def till(self) -> Till:
        return Till(self.folder / "bill", self.prices)

    def environment(self) -> dict[str, str]:
        """For a worker: beside what each of them inherits."""
        self.require_consent()
        found = {KEY_VARIABLES[self.access.service]: self.key}
        if self.sdk_path is not None:
            paths = (str(self.sdk_path), os.environ.get("PYTHONPATH", ""))
            found["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        return found

    def leaves(self) -> str:
        """What goes to the service, for a person to read before any of it does."""
        return (
            f"{self.access.place} computes every answer and every step. What leaves this machine: the tokens of each "
            "request (system prompt, tools, history and message, as the agent sends them), of each answer, and of the "
            "hints that people gave. What stays: names, keys, verdicts, scores and the store. Tokens are text to "
            "whoever has the tokenizer. store.redact keeps turns with secrets out of training, and not out of "
            "answering; a conversation with X-No-Train is answered there and never trained on."
        )

    def agree(self) -> None:
        """Somebody read it and said yes; asked once for each service and address."""
        self._write("consent.json", {**self._identity(), "at": time.time()})

    @property
    def has_consent(self) -> bool:
        try:
            raw = json.loads((self.folder / "consent.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return self.is_agreed
        return self.is_agreed or all(raw.get(name) == self._identity()[name] for name in ("service", "url"))

    def require_consent(self) -> None:
        """`ConfigError` with what leaves, before anything does."""
        if not self.has_consent:
            raise ConfigError(
                f"{self.leaves()} Start it on a terminal to agree, or set training.cloud.consent=true "
                "(OPENCLAW_RL__TRAINING__CLOUD__CONSENT=true)"
            )

    def options(self) -> dict[str, Json]:
        """For a worker's command line: no secret is among them."""
        return {
            "access": self.access.to_json(),
            "abilities": self.abilities().to_json(),
            "bill": str(self.folder / "bill"),
            "prices": asdict(self.prices),
        }

    def abilities(self) -> Abilities:
        """As they were last seen; looks where nobody has yet. Blocking; `ConfigError`."""
        known = self._known()
        return self.survey()[0] if known is None else known

    def survey(self) -> tuple[Abilities, str]:
        """Looks, and with it why it could not be looked, where something earlier is known. Blocking; `ConfigError`."""
        try:
            raw = self._ask("survey")
        except CloudError as error:
            known = self._known()
            if known is None:
                raise ConfigError(
                    f"{error}; it was never seen from here, so that nobody knows what it can do"
                ) from None
            return known, str(error)
        abilities = Abilities.from_json(raw["abilities"])
        told = {"access": self._identity(), "abilities": abilities.to_json(), "at": time.time()}
        self._write("survey.json", told)
        self.till.keep_prices()
        return abilities, ""

    def remove(self, uris: Sequence[str]) -> None:
        """`CloudError` if something of them stays. Blocking."""
        self._ask("remove", *uris)

    def _ask(self, what: str, *names: str) -> Mapping[str, Any]:
        self.require_consent()
        access = replace(self.access, patience_s=min(self.access.patience_s, _PATIENCE_S))  # a start waits for this
        command = (sys.executable, "-m", "openclaw_rl.cloud", what, json.dumps(access.to_json()), *names)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_LOOK_S,
                env={**worker_environment(), **self.environment()},
            )
            answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            raise CloudError(f"{self.access.place} did not answer in time", kind="away") from None
        except (OSError, ValueError, IndexError) as error:
            raise CloudError(f"{self.access.place} could not be asked: {error!r}", kind="failed") from error
        if (why := answer.get("error")) is None:
            return answer
        if answer["kind"] == "config":
            raise ConfigError(why)
        raise CloudError(why, kind=answer["kind"])

    def _identity(self) -> dict[str, Json]:
        """What has to be the same for a look of earlier to count."""
        access = self.access
        return {"service": access.service, "url": access.url, "base_model": access.base_model}

    def _known(self) -> Abilities | None:
        try:
            raw = json.loads((self.folder / "survey.json").read_text(encoding="utf-8"))
            return Abilities.from_json(raw["abilities"]) if raw["access"] == self._identity() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, name: str, found: Mapping[str, Json]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = self.folder / f".{name}.new"
        scratch.write_text(json.dumps(found) + "\n", encoding="utf-8")
        scratch.replace(self.folder / name)
