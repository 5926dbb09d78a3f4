"""Subject templates: the attributes that a tenant wants of a subject, and whether a subject has them."""

from collections.abc import Iterator, Sequence

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from snapapp.domain.rules.subjects import Subject
from snapapp.domain.tables import Template
from snapapp.errors import TemplateNotFound

_OF_TENANT = select(Template).where(Template.tenant == bindparam("tenant"))
_BY_ID = _OF_TENANT.where(Template.id == bindparam("id"))
_DEFAULT = _OF_TENANT.where(Template.is_default)


def resolve(db: Session, tenant: str, template_id: int | None) -> Template:
    """The template with this id, which must be active; without an id, the tenant's default."""
    template = db.scalar(_DEFAULT, {"tenant": tenant}) if template_id is None else read(db, tenant, template_id)
    if template is None or not template.is_active:
        raise TemplateNotFound(template_id or "default")
    return template


def read(db: Session, tenant: str, template_id: int) -> Template:
    template = db.scalar(_BY_ID, {"tenant": tenant, "id": template_id})
    if template is None:
        raise TemplateNotFound(template_id)
    return template


def every(db: Session, tenant: str) -> Sequence[Template]:
    """All templates of a tenant, inactive ones too: the default first, the others by name."""
    in_order = _OF_TENANT.order_by(Template.is_default.desc(), Template.name, Template.id)
    return db.scalars(in_order, {"tenant": tenant}).all()


def violations(template: Template, subject: Subject) -> Iterator[str]:
    """What the template wants and the subject lacks. A subject may have attributes that the template does not name."""
    by_key = {attribute.key: attribute for attribute in subject.attributes}
    for field in template.fields:
        attribute = by_key.get(field.key)
        if field.key == "id" and attribute is None and subject.id:
            continue  # the field "id" is met by the subject's own id
        if attribute is None or attribute.value == "":
            if field.required:
                yield f"subject.attributes.{field.key}: is required"
        elif attribute.type != field.type:
            yield f"subject.attributes.{field.key}: must be a {field.type}"
