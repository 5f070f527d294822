"""Incidents written as stories are judged as they say; ``--rewrite`` writes today's verdict down, for review in the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.diagnosis.hang.claims import STRENGTH
from tests.support.stories import Nonsense, Stage, blocks, play, reported

FOLDER = Path(__file__).parents[2] / "incidents"
STORIES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_ends_as_it_is_told(story: Path, rewrite: bool) -> None:
    """What the cluster does is judged as the lines below ``----`` say, word for word."""
    for line, said, expected in play(story, rewrite=rewrite):
        assert said == expected, f"{story.name}:{line}: run with --rewrite to see the change as a diff"


def test_there_are_stories_of_every_class() -> None:
    """A dozen stories or more, and every class that the hang analyzer has a strength for is in one of them."""
    text = "".join(path.read_text(encoding="utf-8") for path in STORIES)
    assert len(STORIES) >= 12
    for word in ("device_or_network", "deadlock", *STRENGTH):
        assert f"  {word}  " in text or word == "not_excluded", word
    assert "healthy  cause none" in text
    assert "abstained" in text


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_is_written_as_the_rewriter_would(story: Path) -> None:
    """Rewriting changes expectations only: what is said stays as it was typed."""
    text = story.read_text(encoding="utf-8")
    assert reported(blocks(text)) == text


def test_rewriting_changes_what_is_expected_and_nothing_else(tmp_path: Path) -> None:
    """A story with a wrong expectation fails, is rewritten, and then holds."""
    story = tmp_path / "story.txt"
    story.write_text("# a pair\njob tp=2 pp=2 dp=2\ndump at 50%\nverdict\n----\nnonsense\n", encoding="utf-8")
    assert [said == expected for _, said, expected in play(story)] == [False]
    assert list(play(story, rewrite=True)) == []
    assert [said == expected for _, said, expected in play(story)] == [True]
    assert story.read_text(encoding="utf-8").startswith(
        "# a pair\njob tp=2 pp=2 dp=2\ndump at 50%\nverdict\n----\nhealthy"
    )


@pytest.mark.parametrize(
    "line",
    ["jbo tp=2", "job pt=2", "job tp=x", "fault bad rank=1", "fault never_entered rank=1 at=nowhere", "dump soon"],
)
def test_nonsense_is_told_by_its_line(line: str) -> None:
    """A line that means nothing is an error that names it, never passed over."""
    (block,) = blocks(f"# a story\njob tp=1 pp=1 dp=2\n{line}\nverdict\n----\n")
    with pytest.raises(Nonsense, match=r"line [34]"):
        Stage().perform(block)


def test_lines_that_expect_nothing_are_an_error() -> None:
    """A verdict without ``----`` would silently hold."""
    with pytest.raises(Nonsense, match="close them"):
        blocks("job tp=1 pp=1 dp=2\nverdict\n")
