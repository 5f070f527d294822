"""What the engine has learned of each attempt's progress: kept over its restart, and shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables to this version."""
    op.create_table(
        "progress",
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job", "attempt", name="pk_progress"),
    )
    op.create_index("ix_progress_at", "progress", ["at"])


def downgrade() -> None:
    """Take the tables back to the version before."""
    op.drop_table("progress")
