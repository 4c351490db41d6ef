#!/bin/sh
# Compares package compare with SciPy on random tables. Keeps a virtual environment of Python
# in .cache/scipy; needs python3 and, the first time, a package index.
set -eu
cd "$(dirname "$0")/../../.."
here=scoring/compare/scipy
venv=.cache/scipy
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
	"${PYTHON:-python3}" -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
	cp "$here/requirements.txt" "$venv/requirements.txt"
fi
tables="$venv/tables.jsonl"
"${GO:-go}" run "./$here" "$@" >"$tables"
"$venv/bin/python" "$here/check.py" "$tables"
