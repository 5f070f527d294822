"""Incidents: what the engine opened, judged and closed, and operators' feedback."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables to this version."""
    op.create_table(
        "alarms",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("job", sa.String(length=255), nullable=True),
        sa.Column("text", sa.String(length=1000), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("raised_at", sa.Double(), nullable=False),
        sa.Column("over_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_alarms"),
    )
    op.create_index("ix_alarms_over_at", "alarms", ["over_at"])
    op.create_table(
        "answers",
        sa.Column("caller", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("caller", "key", name="pk_answers"),
    )
    op.create_index("ix_answers_at", "answers", ["at"])
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("job", sa.String(length=255), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("onset_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.Column("closed_because", sa.String(length=1000), nullable=False),
        sa.Column("merged_into", sa.String(length=32), nullable=True),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("verdict_version", sa.Integer(), nullable=False),
        sa.Column("symptom", sa.String(length=32), nullable=True),
        sa.Column("cause", sa.String(length=32), nullable=True),
        sa.Column("abstained", sa.Boolean(), nullable=True),
        sa.Column("action", sa.String(length=32), nullable=True),
        sa.Column("culprits", sa.JSON(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("context", sa.LargeBinary(), nullable=False),
        sa.Column("pin", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
    )
    op.create_index("ix_incidents_closed_at", "incidents", ["closed_at"])
    op.create_index("ix_incidents_job_opened_at", "incidents", ["job", "opened_at"])
    op.create_index("ix_incidents_opened_at", "incidents", ["opened_at"])
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_table(
        "downtimes",
        sa.Column("incident", sa.String(length=32), nullable=False),
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("onset_at", sa.Double(), nullable=False),
        sa.Column("detected_at", sa.Double(), nullable=False),
        sa.Column("verdict_at", sa.Double(), nullable=True),
        sa.Column("acted_at", sa.Double(), nullable=True),
        sa.Column("first_good_at", sa.Double(), nullable=True),
        sa.Column("last_step", sa.Integer(), nullable=True),
        sa.Column("resumed_step", sa.Integer(), nullable=True),
        sa.Column("steps_lost", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.id"], name="fk_downtimes_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("incident", name="pk_downtimes"),
    )
    op.create_index("ix_downtimes_job_onset_at", "downtimes", ["job", "onset_at"])
    op.create_table(
        "feedback",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("incident", sa.String(length=32), nullable=False),
        sa.Column("verdict_version", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("judgement", sa.String(length=16), nullable=False),
        sa.Column("culprit_kind", sa.String(length=32), nullable=True),
        sa.Column("culprit", sa.String(length=255), nullable=True),
        sa.Column("text", sa.String(length=2000), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.id"], name="fk_feedback_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_feedback"),
    )
    op.create_index("ix_feedback_incident", "feedback", ["incident"])
    op.create_table(
        "happenings",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("incident", sa.String(length=32), nullable=True),
        sa.Column("job", sa.String(length=255), nullable=True),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.id"], name="fk_happenings_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sequence", name="pk_happenings"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_happenings_at", "happenings", ["at"])
    op.create_index("ix_happenings_incident_sequence", "happenings", ["incident", "sequence"])
    op.create_table(
        "unfit_nodes",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("incident", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("why", sa.String(length=1000), nullable=False),
        sa.Column("until", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.id"], name="fk_unfit_nodes_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node", "incident", name="pk_unfit_nodes"),
    )
    op.create_index("ix_unfit_nodes_incident", "unfit_nodes", ["incident"])
    op.create_table(
        "verdicts",
        sa.Column("incident", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("cut", sa.JSON(), nullable=False),
        sa.Column("knowledge", sa.String(length=80), nullable=False),
        sa.Column("program", sa.String(length=64), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("claims", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.id"], name="fk_verdicts_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("incident", "version", name="pk_verdicts"),
    )


def downgrade() -> None:
    """Take them back to the version before."""
    for table in (
        "verdicts",
        "unfit_nodes",
        "happenings",
        "feedback",
        "downtimes",
        "leases",
        "incidents",
        "answers",
        "alarms",
    ):
        op.drop_table(table)
