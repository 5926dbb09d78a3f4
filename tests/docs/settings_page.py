"""docs/settings.md, made from the table of settings: `python -m tests.docs.settings_page`."""

from typing import Any

from snapapp.settings.env_file import DEFAULT_ENV_FILE
from snapapp.settings.table import TABLE, Setting
from tests import ROOT

PAGE = ROOT / "docs" / "settings.md"


def page() -> str:
    rows = [_documented(entry) for entry in TABLE.values()]
    return "\n".join([*_DOCUMENTATION_HEAD, *rows, ""])


def _documented(entry: Setting[Any]) -> str:
    default = f"`{entry.default}`" if entry.default else "none"
    if entry.prod_default is not None:
        default += f", in prod `{entry.prod_default}`"
    secret = " Secret: never shown whole." if entry.secret else ""
    return f"| `{entry.name}` | {default} | {entry.reader.accepts} | {entry.description}{secret} |"


_DOCUMENTATION_HEAD = (
    "# Settings",
    "",
    "<!-- Made by `make docs` from the table in snapapp/settings/table.py; do not edit. -->",
    "",
    "Settings come from the environment. Beneath it, commands read the file that `SNAPAPP_ENV_FILE` names,",
    f"by default `{DEFAULT_ENV_FILE}`: lines of `KEY=VALUE` as systemd's `EnvironmentFile` takes them,",
    "comments on lines of their own that begin with `#` or `;`, quotes where a value needs them. The environment wins;",
    "an empty value counts as not set. A file that was named must be readable; the default one may be missing, and if",
    "it is there but may not be read, you are warned.",
    "",
    "Wrong settings stop the start, every mistake named at once. A `SNAPAPP_` variable that is not listed",
    "here is only a warning. `snapapp config --explain` shows each value and where it comes from.",
    "",
    "In prod (`SNAPAPP_ENV=prod`) `SNAPAPP_DATABASE_URL`, `SNAPAPP_INTERNAL_TOKEN` and `SNAPAPP_SIGNING_SECRET` are",
    "required, paths must be absolute, an `http://` address of S3 must be on this machine, and the demo must be off.",
    "With `SNAPAPP_REQUIRE_API_TOKEN=true` no tenant may have the token that everybody knows:",
    "`snapapp tenants rotate-token default` makes another one.",
    "",
    "| variable | default | accepted | meaning |",
    "|---|---|---|---|",
)

if __name__ == "__main__":
    PAGE.write_text(page())
