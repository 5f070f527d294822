"""The directories of jobs' roles; tokens that are bound to a job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables to this version."""
    op.create_table(
        "role_directories",
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_role_directories"),
    )
    op.create_index("ix_role_directories_changed_at", "role_directories", ["changed_at"])
    op.create_table(
        "role_slots",
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=64), nullable=False),
        sa.Column("instance", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"], ["role_directories.job"], name="fk_role_slots_job_role_directories", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job", "role", "instance", name="pk_role_slots"),
    )
    op.create_index("ix_role_slots_job_version", "role_slots", ["job", "version"])
    op.add_column("tokens", sa.Column("job", sa.String(length=255), nullable=True))


def downgrade() -> None:
    """Take the tables back to the version before."""
    op.drop_column("tokens", "job")
    op.drop_table("role_slots")
    op.drop_table("role_directories")
