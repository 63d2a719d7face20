"""What a refusal looks like, in one place."""

from .http1 import Response


def assert_refused(response: Response, status: int, kind: str, code: str | None, param: str | None = None) -> None:
    """The OpenAI error shape, with exactly this status, type, code and param."""
    assert response.status == status, f"{response.status}: {response.body[:500]!r}"
    assert (response.header("content-type") or "").startswith("application/json")
    error = response.error()
    assert error["type"] == kind, error
    assert error["param"] == param, error
    assert isinstance(error["message"], str) and error["message"]
    if code is not None:
        assert error["code"] == code, error
