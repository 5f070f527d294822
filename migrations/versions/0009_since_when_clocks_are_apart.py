"""From which instant on a step forward counts: what was received before the clocks came apart is dated right."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_COLUMNS = ("step_from", "agreed_at")


def upgrade() -> None:
    """Bring the tables to this version."""
    for name in _COLUMNS:
        op.add_column("service_clocks", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    """Take the tables back to the version before."""
    with op.batch_alter_table("service_clocks") as table:
        for name in _COLUMNS:
            table.drop_column(name)
