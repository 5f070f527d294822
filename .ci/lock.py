"""Turn pip's resolution report into constraints.txt: `make lock` calls it."""

import json
import re
import sys
from pathlib import Path

HEADER = """\
# Exact versions of everything that `pip install '.[test,lint]'` brings, made by `make lock`; do not edit.
# torch is not here: only the `test` extra in pyproject.toml names it, at its exact version.
"""
LEFT_OUT = {"faulthound", "torch"}


def main(report_path: str) -> None:
    """Print one `name==version` a line, sorted, without local version labels such as `+cpu`."""
    installed = json.loads(Path(report_path).read_text(encoding="utf-8"))["install"]
    pins = {re.sub(r"[-_.]+", "-", row["metadata"]["name"]).lower(): row["metadata"]["version"] for row in installed}
    lines = [f"{name}=={version.partition('+')[0]}" for name, version in sorted(pins.items()) if name not in LEFT_OUT]
    sys.stdout.write(HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
