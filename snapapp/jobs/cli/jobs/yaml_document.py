"""Reads a YAML document as strictly as JSON. Imported only for such a document, because PyYAML is an extra."""

from typing import Any

import yaml


class _Strict(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Accepts plain values only. It refuses a key that comes twice, and anchors, with which a few lines can make
    gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError(f"anchors and aliases are not read{event.start_mark}")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(mapping) < len(names):
            doubled = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{doubled!r} comes twice in one object{node.start_mark}")
        return mapping


def parse(text: str) -> Any:
    try:
        return yaml.load(text, _Strict)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
