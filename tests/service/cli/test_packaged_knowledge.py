"""Knowledge that a site gives: it lies over the packaged tables, and is refused where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from service import packaged_knowledge


def test_knowledge_overrides_lie_over_the_packaged(tmp_path: Path) -> None:
    """A file, or a folder of files, named after a packaged table changes its rows and the hash, and nothing else."""
    packaged = packaged_knowledge.load()
    name = "crash"  # of a table whose rows are not checked as a whole
    (tmp_path / f"{name}.toml").write_text("site_says = 1\n", encoding="utf-8")

    for given in (tmp_path, tmp_path / f"{name}.toml"):
        changed = packaged_knowledge.load(given)
        assert changed.table(name)["site_says"] == 1
        assert {**changed.table(name), "site_says": None} == {**packaged.table(name), "site_says": None}
        assert changed.hash != packaged.hash


@pytest.mark.parametrize("content", [b"= wrong", b"\xff\xfe", b"# " + b"x" * packaged_knowledge.MOST_BYTES])
def test_broken_knowledge_is_refused(tmp_path: Path, content: bytes) -> None:
    """An override that is no TOML, no text or too large is refused by name."""
    file = tmp_path / f"{min(packaged_knowledge.load().tables)}.toml"
    file.write_bytes(content)

    with pytest.raises(packaged_knowledge.KnowledgeError, match=file.name):
        packaged_knowledge.load(file)


def test_an_empty_knowledge_folder_is_refused(tmp_path: Path) -> None:
    """A folder without a table is a mistake and not a silent nothing."""
    with pytest.raises(packaged_knowledge.KnowledgeError, match=r"holds no \.toml"):
        packaged_knowledge.load(tmp_path)
