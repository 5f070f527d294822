"""What retention takes from the nodes that have most: their sizes in an index, and up to where it took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables to this version."""
    op.drop_index("ix_batches_node_received_at", "batches")
    op.create_index("ix_batches_node_received_at", "batches", ["node", "received_at", "size_bytes"])
    op.create_table(
        "removed_batches",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_removed_batches"),
    )


def downgrade() -> None:
    """Take the tables back to the version before."""
    op.drop_table("removed_batches")
    op.drop_index("ix_batches_node_received_at", "batches")
    op.create_index("ix_batches_node_received_at", "batches", ["node", "received_at"])
