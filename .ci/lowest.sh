#!/usr/bin/env bash
# Install the lowest version of every dependency that pyproject.toml names, and run the quick tests of the service and the agent with them.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${1:-out/lowest}
uv venv --quiet --allow-existing "$environment"
VIRTUAL_ENV=$environment uv pip install --quiet --resolution lowest-direct '.[check]'
"$environment/bin/python" -m pytest tests/service/api tests/service/store tests/collectors/agent -m 'not system and not slow and not alone and not acceptance'
