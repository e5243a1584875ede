"""All errors that Sixfold raises intentionally, as one tree.

    SixfoldError                 500  internal_error
    ├── BadRequest               400  bad_request
    │   ├── InvalidInput         400  invalid_input        (problems: one per failing input)
    │   ├── InputTooLarge        400  input_too_large      (more items than a reader accepts)
    │   └── UnpricedModel        400  unpriced_model
    ├── Unauthenticated          401  invalid_api_key
    ├── InsufficientCredits      402  insufficient_credits
    ├── Forbidden                403  forbidden
    │   └── SignInAgain          403  sign_in_again        (the session's login is too old for this)
    ├── NotFound                 404  not_found
    │   ├── UnknownModel         404  model_not_found
    │   └── UnknownService       404  unknown_service
    ├── MethodNotAllowed         405  method_not_allowed
    ├── Conflict                 409  conflict
    │   ├── InProgress           409  in_progress
    │   └── IdempotencyMismatch  409  idempotency_mismatch
    ├── PreconditionFailed       412  precondition_failed
    ├── TooLarge                 413  too_large
    ├── UnsupportedMedia         415  unsupported_media
    ├── TooManyRequests          429  rate_limited         (retry_after)
    │   ├── TooManyPeerConnections     429  too_many_connections
    │   ├── TooManyUnfinishedRequests  429  too_many_unfinished_requests
    │   ├── TooManyStreams       429  too_many_websockets, _event_streams, _chat_streams, _exports
    │   ├── QueueFull            429  queue_full
    │   └── BudgetExceeded       429  budget_exceeded
    ├── FetchRefused             400  fetch_refused        (a user's URL that may not be fetched)
    ├── FetchFailed              400  fetch_failed         (a user's URL that could not be fetched)
    ├── EngineFailed             502  generation_failed
    ├── UpstreamRefused          any  upstream_refused     (a model server's own error response)
    │   └── TooLong              any  context_length_exceeded
    ├── NotSupported             501  not_supported        (a resource of a standard API that is not here)
    ├── EngineUnavailable        503  engine_unavailable
    ├── GpuBusy                  503  gpu_busy             (retry_after; other models use the GPU)
    ├── NotConfigured            503  not_configured
    ├── ShuttingDown             503  shutting_down
    ├── TooManyConnections       503  too_many_connections
    └── StoreFailed              503  storage_unavailable  (the database or the disk fails)
        └── StoreUnreachable                               (it may respond again soon)

The docstring is the default message; status and code are class attributes. Each API translates them into its
own format; code below the APIs does not depend on HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class SixfoldError(Exception):
    """Internal server error."""

    status = 500
    code = "internal_error"
    # Seconds after which to try again, or 0 if unknown.
    retry_after = 0
    # Whether the same request fails until the configuration changes.
    permanent = False
    # The charge in micro-dollars for a reply of a model that a guardrail has blocked.
    cost = 0

    def __init__(self, message: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        super().__init__(self.message)


class BadRequest(SixfoldError):
    """The request is not valid."""

    status = 400
    code = "bad_request"


class Problem(msgspec.Struct, frozen=True):
    """An invalid input: its name, the reason, and a machine-readable kind."""

    input: str
    message: str
    kind: str = "value_error"


class InvalidInput(BadRequest):
    """An input is not valid."""

    code = "invalid_input"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))

    @classmethod
    def of(cls, name: str, sentence: str, kind: str = "value") -> InvalidInput:
        return cls([Problem(name, sentence, kind)])

    def joined(self, problems: Sequence[Problem]) -> InvalidInput:
        """Return the error with the problems of further inputs."""
        known = {problem.input for problem in self.problems}
        return InvalidInput([*self.problems, *(each for each in problems if each.input not in known)])


class InputTooLarge(BadRequest):
    """The input has too many items."""

    code = "input_too_large"


class UnpricedModel(BadRequest):
    """This model has no price on this server."""

    code = "unpriced_model"


class Unauthenticated(SixfoldError):
    """Invalid API key"""

    status = 401
    code = "invalid_api_key"


class InsufficientCredits(SixfoldError):
    """Insufficient credits"""

    status = 402
    code = "insufficient_credits"


class Forbidden(SixfoldError):
    """This key is not allowed to do this."""

    status = 403
    code = "forbidden"


class SignInAgain(Forbidden):
    """This requires a sign-in within the last 10 minutes: sign in and try again. Nothing was changed."""

    code = "sign_in_again"

    def __init__(self, page: str = "") -> None:
        super().__init__()
        self.page = page


class NotFound(SixfoldError):
    """Not found"""

    status = 404
    code = "not_found"


class UnknownModel(NotFound):
    """Model not found"""

    code = "model_not_found"


class UnknownService(NotFound):
    """Service not found"""

    code = "unknown_service"


class MethodNotAllowed(SixfoldError):
    """Method not allowed"""

    status = 405
    code = "method_not_allowed"


class Conflict(SixfoldError):
    """The request conflicts with the current state."""

    status = 409
    code = "conflict"


class InProgress(Conflict):
    """A request with this Idempotency-Key is still running."""

    code = "in_progress"


class IdempotencyMismatch(Conflict):
    """This Idempotency-Key was used with another request body or query string."""

    code = "idempotency_mismatch"


class PreconditionFailed(SixfoldError):
    """The object has changed since it was read."""

    status = 412
    code = "precondition_failed"


class TooLarge(SixfoldError):
    """The request body is too large."""

    status = 413
    code = "too_large"


class UnsupportedMedia(SixfoldError):
    """This content type is not supported."""

    status = 415
    code = "unsupported_media"


class TooManyRequests(SixfoldError):
    """Too many requests."""

    status = 429
    code = "rate_limited"

    def __init__(self, message: str = "", *, retry_after: int = 1) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class TooManyPeerConnections(TooManyRequests):
    """Your address has too many connections to this server."""

    code = "too_many_connections"


class TooManyUnfinishedRequests(TooManyRequests):
    """Your address has too many incomplete requests at this server."""

    code = "too_many_unfinished_requests"


class TooManyStreams(TooManyRequests):
    """This account has too many open streams."""

    code = "too_many_event_streams"

    def __init__(self, message: str = "", *, code: str = "", retry_after: int = 5) -> None:
        self.code = code or type(self).code
        super().__init__(message, retry_after=retry_after)


class QueueFull(TooManyRequests):
    """The queue of this model is full."""

    code = "queue_full"


class BudgetExceeded(TooManyRequests):
    """This key's budget is used up."""

    code = "budget_exceeded"


class FetchRefused(SixfoldError):
    """This URL may not be fetched."""

    status = 400
    code = "fetch_refused"


class FetchFailed(SixfoldError):
    """This URL could not be fetched."""

    status = 400
    code = "fetch_failed"


class EngineFailed(SixfoldError):
    """Generation failed. Please try again."""

    status = 502
    code = "generation_failed"


class UpstreamRefused(SixfoldError):
    """The model server refused this request."""

    code = "upstream_refused"

    def __init__(self, message: str = "", *, status: int = 400, param: str = "") -> None:
        self.status = status
        self.param = param
        super().__init__(message)


class TooLong(UpstreamRefused):
    """This conversation is too long for the model."""

    code = "context_length_exceeded"


class NotSupported(SixfoldError):
    """This server does not support this resource."""

    status = 501
    permanent = True
    code = "not_supported"


class EngineUnavailable(SixfoldError):
    """No engine on this server supports this request."""

    status = 503
    permanent = True
    code = "engine_unavailable"

    def with_message(self, message: str) -> EngineUnavailable:
        """Return the error with another message, which may be as temporary as this one."""
        error = EngineUnavailable(message)
        error.permanent, error.retry_after = self.permanent, self.retry_after
        return error


class GpuBusy(SixfoldError):
    """The GPU is in use by other models: try again later."""

    status = 503
    code = "gpu_busy"


class NotConfigured(SixfoldError):
    """This feature is not configured on this server."""

    status = 503
    permanent = True
    code = "not_configured"


class ShuttingDown(SixfoldError):
    """The server is shutting down: try again in a moment."""

    status = 503
    code = "shutting_down"
    retry_after = 1


class TooManyConnections(SixfoldError):
    """The server has too many connections: try again in a moment."""

    status = 503
    code = "too_many_connections"
    retry_after = 5


class StoreFailed(SixfoldError):
    """The server cannot reach its storage; nothing was changed."""

    status = 503
    code = "storage_unavailable"
    retry_after = 1


class StoreUnreachable(StoreFailed):
    """The storage does not respond or returns errors; the same request may succeed soon."""
