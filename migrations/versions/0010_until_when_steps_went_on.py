"""Until when steps went on after the onset of an incident: a job may go on without one of its roles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the table to this version."""
    op.add_column("downtimes", sa.Column("stood_at", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take the table back to the version before."""
    with op.batch_alter_table("downtimes") as table:
        table.drop_column("stood_at")
