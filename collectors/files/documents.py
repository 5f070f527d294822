"""Documents are about jobs, and no output of one: what they quote of a log is no evidence of the job that is diagnosed."""

from __future__ import annotations

import re

DOCUMENT = "a document by its name, and no log of a job: save a log that it holds to a file of its own, NAME.log"
_NAME = re.compile(
    r"(?i)(?:\.(?:md|mdx|markdown|rst|adoc|ipynb)|(?:^|/)(?:readme|changelog|contributing|license)(?:\.txt)?)(?:\.(?:gz|xz|bz2|zst))?$"
)


def is_document(source: str) -> bool:
    """Whether a file's name says that it is written for people. Its words do not: a log that was posted has prose, too."""
    return _NAME.search(source) is not None


ADVICE = (
    "it advises in sentences, and is no log: name it alone, or save a log that it holds to a file of its own, NAME.log"
)
