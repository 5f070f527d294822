"""What fails because of the database and of the moment, and not because of what was written: it is tried again."""

from __future__ import annotations

from sqlalchemy import exc

PASSING = (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.ProgrammingError, exc.TimeoutError)
