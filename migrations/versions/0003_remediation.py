"""Remediation: plans under execution, what stops them, and what is remembered of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables to this version."""
    op.add_column("jobs", sa.Column("saving_since", sa.Double(), nullable=True))
    op.add_column("jobs", sa.Column("save_seconds", sa.Double(), nullable=True))
    op.add_column("jobs", sa.Column("last_checkpoint_at", sa.Double(), nullable=True))
    op.create_table(
        "remediations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("incident", sa.String(length=32), nullable=False),
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("task", sa.String(length=8), nullable=True),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("proposed_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_remediations"),
    )
    op.create_index("ix_remediations_changed_at", "remediations", ["changed_at"])
    op.create_index("ix_remediations_incident", "remediations", ["incident"])
    op.create_index("ix_remediations_job_proposed_at", "remediations", ["job", "proposed_at"])
    op.create_index("ix_remediations_proposed_at_id", "remediations", ["proposed_at", "id"])
    op.create_index("ix_remediations_status", "remediations", ["status"])
    op.create_index("ix_remediations_task", "remediations", ["task"])
    op.create_table(
        "holds",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.String(length=1000), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=True),
        sa.Column("job", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_holds"),
    )
    op.create_index("ix_holds_made_at", "holds", ["made_at"])
    op.create_table(
        "switches",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("document", sa.JSON(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_switches"),
    )
    op.create_table(
        "executions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("remediation", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_executions"),
    )
    op.create_index("ix_executions_at", "executions", ["at"])
    op.create_table(
        "node_records",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_node_records"),
    )
    op.create_table(
        "shadow_cases",
        sa.Column("remediation", sa.String(length=32), nullable=False),
        sa.Column("incident", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.Column("correct", sa.Boolean(), nullable=True),
        sa.Column("because", sa.String(length=1000), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("remediation", name="pk_shadow_cases"),
    )
    op.create_index("ix_shadow_cases_closed_at", "shadow_cases", ["closed_at"])
    op.create_index("ix_shadow_cases_incident", "shadow_cases", ["incident"])
    op.create_table(
        "page_sessions",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=32), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["token"], ["tokens.id"], name="fk_page_sessions_token_tokens", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("hash", name="pk_page_sessions"),
    )
    op.create_index("ix_page_sessions_expires_at", "page_sessions", ["expires_at"])


def downgrade() -> None:
    """Take them back to the version before."""
    for table in ("page_sessions", "shadow_cases", "node_records", "executions", "switches", "holds", "remediations"):
        op.drop_table(table)
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("last_checkpoint_at")
        jobs.drop_column("save_seconds")
        jobs.drop_column("saving_since")
