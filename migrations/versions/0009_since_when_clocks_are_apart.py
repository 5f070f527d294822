"""From which instant on a step forward counts: what was received before the clocks came apart is dated right."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables to this version."""
    op.add_column("service_clocks", sa.Column("agreed_at", sa.Double(), nullable=True))
    op.add_column("service_clocks", sa.Column("steps", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    """Take the tables back to the version before."""
    with op.batch_alter_table("service_clocks") as table:
        table.drop_column("agreed_at")
        table.drop_column("steps")
