"""/internal/kinds: what this process can run."""

from starlette.testclient import TestClient


def test_kinds_are_shown_with_how_they_run(client: TestClient) -> None:
    found = {one["kind"]: one for one in client.get("/internal/kinds").json()["items"]}
    assert list(found) == sorted(found)
    assert found["demo.crunch"] == {
        "kind": "demo.crunch",
        "queue": "demo",
        "executor": "process",
        "maxAttempts": None,
        "timeoutMs": None,
        "about": '{"seconds": 2}: keeps a core busy, in a child process so that nothing else waits for it.',
        "payload": None,
    }
