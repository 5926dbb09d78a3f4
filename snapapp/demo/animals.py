"""The animals of the demo, which its video shows and its snaps describe."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Animal:
    """An animal's ear tag and looks."""

    tag: str
    breed: str
    sex: str
    weight: float  # kg
    hide: str
    passes: float  # the second at which its middle is in the gate


HERD = tuple(
    Animal(f"BR-{1040 + place}", breed, sex, weight, hide, (16 + 23 * place) / 10)
    for place, (breed, sex, weight, hide) in enumerate(
        [
            ("Nelore", "F", 412.5, "#e9e4d8"),
            ("Angus", "M", 487.0, "#37312f"),
            ("Nelore", "M", 455.5, "#ddd5c3"),
            ("Senepol", "F", 398.0, "#9c4a2a"),
            ("Nelore", "F", 421.0, "#efeae0"),
            ("Brangus", "M", 502.5, "#2f2b2c"),
            ("Hereford", "F", 433.0, "#a5562f"),
            ("Nelore", "M", 468.0, "#e2dccd"),
        ]
    )
)
