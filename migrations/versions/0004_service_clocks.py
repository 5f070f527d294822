"""The clocks of the service's machines: how each machine's boot time becomes UTC, and since when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables to this version."""
    op.create_table(
        "service_clocks",
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("offset_seconds", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("doubt", sa.String(length=1000), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=True),
        sa.Column("step_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("boot_id", name="pk_service_clocks"),
    )


def downgrade() -> None:
    """Take the tables back to the version before."""
    op.drop_table("service_clocks")
