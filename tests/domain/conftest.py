"""Two tenants that have everything: `north`, who asks, and `south`, who must not be seen."""

import pytest
import sqlalchemy

from tests.domain.making import Everything, furnish


@pytest.fixture
def north(engine: sqlalchemy.Engine) -> Everything:
    return furnish(engine, "north")


@pytest.fixture
def south(engine: sqlalchemy.Engine) -> Everything:
    return furnish(engine, "south")
