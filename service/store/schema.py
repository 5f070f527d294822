"""What every table is made of, and what makes a text fit for a column."""

from __future__ import annotations

from collections.abc import Mapping
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


def clean(text: str, longest: int) -> str:
    """Return the text without NUL and lone surrogates, which PostgreSQL refuses, and cut to the column's width."""
    return text[:longest].replace("\x00", "").encode("utf-8", "replace").decode()


def clean_details(details: Mapping[str, Any] | None, longest: int) -> dict[str, Any]:
    """Return details whose texts are clean."""
    return {key: clean(value, longest) if isinstance(value, str) else value for key, value in (details or {}).items()}
