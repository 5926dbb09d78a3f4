"""Two tenants that have everything, `north`, who asks, and `south`, who must not be seen; and the seeded one."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.jobs.rows.database import sqlalchemy_url
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.domain.making import OWN, Everything, acting, furnish


class Furnished(NamedTuple):
    database: str
    north: Everything
    south: Everything


@pytest.fixture(scope="session")
def furnished(servers: Callable[[str], Postgres]) -> Iterator[Furnished]:
    """A database with both tenants, for tests that take a copy of it."""
    with servers(EMBEDDED).database("migrated") as url:
        engine = sqlalchemy.create_engine(sqlalchemy_url(url))
        north, south = furnish(engine, "north"), furnish(engine, "south")
        engine.dispose()
        yield Furnished(str(sqlalchemy.make_url(url).database), north, south)


@pytest.fixture
def north(engine: sqlalchemy.Engine) -> Everything:
    return furnish(engine, "north")


@pytest.fixture
def south(engine: sqlalchemy.Engine) -> Everything:
    return furnish(engine, "south")


@pytest.fixture
def own(engine: sqlalchemy.Engine) -> Iterator[Session]:
    """A transaction in the scope of the seeded tenant."""
    with acting(engine, OWN) as session:
        yield session
