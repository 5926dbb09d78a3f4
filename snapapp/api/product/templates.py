"""/v2/templates: the attributes that a tenant wants of its subjects."""

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import Field

from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Id, Shown
from snapapp.api.http.tenancy import Own
from snapapp.domain import templates

router = Router(prefix="/v2/templates", tags=["templates"])


TemplateId = Annotated[Id, Path(description="The template's id.", examples=[2])]


class FieldShown(Shown):
    key: str = Field(examples=["brinco"])
    type: Literal["string", "number"]
    required: bool = Field(description="Whether a subject that follows the template must have it.")
    order: int = Field(description="Its place in a form.", examples=[1])
    default: Any = Field(description="A default value for forms.", examples=[None])


class TemplateShown(Shown):
    """The attributes that a subject should have. It may have others too."""

    id: int = Field(description="To be sent as `subjectTemplateId`.", examples=[2])
    slug: str = Field(examples=["gado"])
    name: str = Field(examples=["Gado"])
    is_default: bool = Field(description="Whether it is applied if a request names none.")
    is_active: bool
    fields: list[FieldShown]


class TemplateList(Shown):
    items: list[TemplateShown]


@router.get("")
def list_templates(own: Own) -> TemplateList:
    """The tenant's templates, the default first."""
    every_template = templates.every(own.db, own.code)
    return TemplateList(items=[TemplateShown.model_validate(each) for each in every_template])


@router.get("/{template_id}", responses=may_be(_404="The tenant has no such template."))
def show_template(own: Own, template_id: TemplateId) -> TemplateShown:
    """One template."""
    return TemplateShown.model_validate(templates.read(own.db, own.code, template_id))
