"""The exception tree. A message says what happened, what was got, and the remedy.

OpenClawError
├── ConfigError            a setting is wrong; the message names the nearest valid one
├── NotFound               what somebody named is not in the store
├── ModelError             a model cannot be found, fetched, verified or understood
├── RequestError           a client's request is wrong (an HTTP 4xx in the client's dialect)
├── PromptTooLong          a rendering made, or is bound to make, more tokens than it was allowed
├── JudgeError             a judge cannot be made or asked as configured
├── TrainError             a step cannot be taken as configured
│   └── TrainerLost        the trainer's process died; its order can be given again
├── CloudError             a service that computes for us refuses, fails or does not answer
├── TaskError              a task is broken, hostile, or needs what this machine does not have
├── EnvError               an environment failed an attempt: that says nothing of the agent
│   ├── EnvBusy            it has no room now
│   ├── EnvGone            it does not answer, or knows the lease no more
│   └── HarnessFailed      the program that acts ended with an error
├── StoreError             the store cannot be opened or used as asked
│   ├── StoreBusy          another process is the writer of this directory
│   ├── StoreDamaged       its files are not what was written to them
│   └── StoreUnavailable   a write failed (disk full, I/O error): nothing was acknowledged
└── EngineError            the engine refused or failed a request
    ├── EngineLost         the engine's process died in the middle
    └── EngineUnavailable  no engine came up in time
"""

from __future__ import annotations


class OpenClawError(Exception):
    """Root of everything we raise on purpose."""


class ConfigError(OpenClawError):
    """A setting is wrong."""


class NotFound(OpenClawError):
    """A session, turn, version, user or key that is not in the store; the message says what there is."""


class ModelError(OpenClawError):
    """A model cannot be found, fetched, verified or understood."""


CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The code of a request that the model's window does not hold."""


class RequestError(OpenClawError):
    """A client's request is wrong, or one too many. `param` is the field at fault, `code` a machine-readable reason.

    `retry_after_s` is what the client is told where the same request may be welcome later.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


class PromptTooLong(OpenClawError):
    """A rendering stopped when it was sure to have at least `num_tokens`, more than it was allowed."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__(f"the prompt has {num_tokens} tokens or more")
        self.num_tokens = num_tokens


class JudgeError(OpenClawError):
    """A judge cannot be made or asked as configured. What a judge says about a turn is never an exception."""


class TrainError(OpenClawError):
    """A step cannot be taken as configured; the message names the setting that helps."""


class TrainerLost(TrainError):
    """The trainer's process died in the middle of an order."""


class CloudError(OpenClawError):
    """A service that computes for us. `kind` says what may help: away and busy pass, missing is gone for good, key and
    billing are the owner's matter, refused will be refused again, failed went wrong over there."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class TaskError(OpenClawError):
    """A task is broken, hostile, or needs what this machine does not have; the message says what, and the remedy."""


class EnvError(OpenClawError):
    """An environment failed an attempt. What an agent did wrong is an observation, never an exception."""


class EnvBusy(EnvError):
    """No room is free. `retry_after_s` is when to ask again."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EnvGone(EnvError):
    """The environment's server does not answer, or the lease has ended there."""


class HarnessFailed(EnvError):
    """The program that acts ended with an error. Only if it asked the model before may that be the agent's doing."""


class StoreError(OpenClawError):
    """The store cannot be opened or used as asked."""


class StoreBusy(StoreError):
    """Another process is the writer of this directory."""


class StoreDamaged(StoreError):
    """The store's files are not what was written to them; the message says what is left to do."""


class StoreUnavailable(StoreError):
    """A write failed. Nothing of it was acknowledged; the next write starts from a fresh connection."""


class EngineError(OpenClawError):
    """The engine failed a request."""


class EngineRefused(EngineError):
    """The request cannot be served as it is. `status` is an HTTP 4xx, `code` a machine-readable reason."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class EngineLost(EngineError):
    """The engine's process died, or its connection broke, in the middle of a request."""


class EngineUnavailable(EngineError):
    """No engine came up in time. `retry_after_s` is what the client is told."""

    def __init__(self, message: str, *, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
