"""Subject templates: which attributes a tenant wants of a subject, and whether it has them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from snapapp.errors import TemplateNotFound
from snapapp.subjects import Subject

_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Field:
    key: str
    type: str  # string or number
    required: bool = False
    order: int = 0
    default: Any = None


@dataclass(frozen=True, slots=True)
class Template:
    id: int
    slug: str
    name: str
    fields: tuple[Field, ...]
    is_default: bool
    is_active: bool


_READ = """
SELECT id, slug, name, fields::text, is_default, is_active FROM template
 WHERE tenant = %(tenant)s AND id = %(id)s
"""

_DEFAULT = """
SELECT id, slug, name, fields::text, is_default, is_active FROM template
 WHERE tenant = %(tenant)s AND is_default
"""

_EVERY = """
SELECT id, slug, name, fields::text, is_default, is_active FROM template
 WHERE tenant = %(tenant)s ORDER BY is_default DESC, name, id
"""


def resolve(db: Connection, tenant: str, template_id: int | None) -> Template:
    """The template that is named, which must be in use; else the tenant's default."""
    template = _default(db, tenant) if template_id is None else read(db, tenant, template_id)
    if not template.is_active:
        raise TemplateNotFound(template.id)
    return template


def read(db: Connection, tenant: str, template_id: int) -> Template:
    if not 0 < template_id <= _HIGHEST:
        raise TemplateNotFound(template_id)
    rows = db.exec_driver_sql(_READ, {"tenant": tenant, "id": template_id}).fetchall()
    if not rows:
        raise TemplateNotFound(template_id)
    return _template(*rows[0])


def _default(db: Connection, tenant: str) -> Template:
    rows = db.exec_driver_sql(_DEFAULT, {"tenant": tenant}).fetchall()
    if not rows:
        raise TemplateNotFound("default")
    return _template(*rows[0])


def every(db: Connection, tenant: str) -> list[Template]:
    """The default first, then by name; those that are out of use too."""
    return [_template(*row) for row in db.exec_driver_sql(_EVERY, {"tenant": tenant})]


def _template(template_id: int, slug: str, name: str, fields: str, is_default: bool, is_active: bool) -> Template:
    read_fields = sorted((Field(**one) for one in json.loads(fields)), key=lambda field: field.order)
    return Template(template_id, slug, name, tuple(read_fields), is_default, is_active)


def violations(template: Template, subject: Subject) -> list[str]:
    """What the template wants and the subject does not have; attributes it does not know are welcome."""
    return list(_violations(template, subject))


def _violations(template: Template, subject: Subject) -> Iterator[str]:
    given = {attribute.key: attribute for attribute in subject.attributes}
    for field in template.fields:
        attribute = given.get(field.key)
        if field.key == "id" and attribute is None and subject.id:
            continue  # an id is a subject's own, not among its attributes
        if attribute is None or attribute.value == "":
            if field.required:
                yield f"subject.attributes.{field.key}: is required"
        elif attribute.type != field.type:
            yield f"subject.attributes.{field.key}: must be a {field.type}"
