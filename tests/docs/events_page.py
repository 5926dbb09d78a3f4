"""docs/events.md, made from the events that there are: `python -m tests.docs.events_page`."""

from snapapp.jobs import events
from tests import ROOT

PAGE = ROOT / "docs" / "events.md"


def page() -> str:
    rows = [
        f"| `{name}` | {', '.join(f'`{fact}`' for fact in its.facts)} | {its.meaning}{_FREQUENT * its.is_frequent} |"
        for name, its in events.ALL.items()
    ]
    return "\n".join([*_HEAD, *rows, ""])


_FREQUENT = " Frequent."
_HEAD = (
    "# Events",
    "",
    "<!-- Made by `make docs` from snapapp/jobs/events.py; do not edit. -->",
    "",
    "What a worker tells whoever listens: its log lines are made of it. A program that has a worker of its own",
    "(`docs/embedding.md`) can listen, too, to one name, or with `None` to all of them:",
    "",
    "    from snapapp.jobs import Worker, events",
    "",
    "    worker = Worker(url)",
    "    worker.events.on(events.JOB_PROCESSED, lambda event: print(event.facts['job_id']))",
    "",
    "That is what other systems call `after_process`: it comes after each attempt that returned, and `JOB_ERRORED`",
    "after one that raised. A listener runs on the thread that tells it: it must be quick, and what it raises is",
    "printed and else ignored. Frequent events are log lines only with `SNAPAPP_LOG_LEVEL=DEBUG`.",
    "",
    "| event | facts | what it means |",
    "|---|---|---|",
)


if __name__ == "__main__":
    PAGE.write_text(page())
