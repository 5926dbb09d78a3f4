"""docs/pictures/: what `python -m tests.pictures` took is there, is small, and is shown."""

import re

from PIL import Image

from tests.pictures.__main__ import FOLDER, LARGEST, document

ALTOGETHER = 2_500_000  # bytes, of which every clone has a copy


def test_every_picture_is_shown_and_small() -> None:
    page = document()
    assert (FOLDER / "README.md").read_text() == page, "type: python -m tests.pictures"
    named = re.findall(r"\]\(([\w-]+\.webp)\)", page)
    sizes = {file.name: file.stat().st_size for file in FOLDER.glob("*.webp")}
    assert sorted(named) == sorted(sizes)
    assert [name for name, size in sizes.items() if size > LARGEST] == []
    assert sum(sizes.values()) <= ALTOGETHER
    for name in named:
        with Image.open(FOLDER / name) as picture:
            assert (picture.format, picture.width >= 390) == ("WEBP", True)
            assert len(picture.convert("L").getcolors() or ()) > 50, name  # something is on it
