"""A rank is a role and a number: two roles of a job may each have a rank 0."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ROLE = sa.String(length=64)


def upgrade() -> None:
    """Bring the tables to this version."""
    op.execute("UPDATE placements SET role = '' WHERE role IS NULL")
    with op.batch_alter_table("placements") as table:
        table.drop_constraint("pk_placements", type_="primary")
        table.alter_column("role", existing_type=_ROLE, nullable=False)
        table.create_primary_key("pk_placements", ["job", "attempt", "role", "rank", "node"])


def downgrade() -> None:
    """Take the tables back to the version before; of several roles' ranks of one number on a node the newest stays."""
    op.execute(
        "DELETE FROM placements WHERE EXISTS (SELECT 1 FROM placements AS other WHERE other.job = placements.job"
        " AND other.attempt = placements.attempt AND other.rank = placements.rank AND other.node = placements.node"
        " AND (other.last_seen_at > placements.last_seen_at"
        " OR (other.last_seen_at = placements.last_seen_at AND other.role > placements.role)))"
    )
    with op.batch_alter_table("placements") as table:
        table.drop_constraint("pk_placements", type_="primary")
        table.alter_column("role", existing_type=_ROLE, nullable=True)
        table.create_primary_key("pk_placements", ["job", "attempt", "rank", "node"])
