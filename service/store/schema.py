"""What every table is made of."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Integer, MetaData
from sqlalchemy.orm import DeclarativeBase

# SQLite counts a primary key only where it is called INTEGER.
Sequence = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """All tables."""

    metadata = MetaData(
        naming_convention={  # a migration can only change what has a name
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON}
