#!/bin/sh
# Make a virtual environment with whatever this machine has: venv, uv or virtualenv.
# PYTHON names the interpreter; by default the first Python >= 3.11 on PATH is taken.
#
#     tools/venv.sh [FOLDER, by default .venv]
set -eu

home=${1:-.venv}
recent='import sys; sys.exit(sys.version_info < (3, 11))'

if "$home/bin/python" -c "$recent" 2>/dev/null && "$home/bin/python" -m pip --version >/dev/null 2>&1; then
  exit 0
fi

if [ -n "${PYTHON:-}" ]; then
  candidates=$PYTHON
else
  candidates='python3 python3.13 python3.12 python3.11 python'
fi
python=
for candidate in $candidates; do
  if "$candidate" -c "$recent" 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "setup: Python 3.11 or later is needed and none of these is one: $candidates; set PYTHON=..." >&2
  exit 1
fi

echo "setup: making $home with $("$python" --version)"
rm -rf "$home"
if "$python" -m venv "$home" >/dev/null 2>&1; then
  exit 0
fi
rm -rf "$home" # a venv without pip stays behind where ensurepip is missing
if command -v uv >/dev/null && uv venv --quiet --seed --python "$python" "$home"; then
  exit 0
fi
if "$python" -m virtualenv --version >/dev/null 2>&1 && "$python" -m virtualenv --quiet "$home"; then
  exit 0
fi
rm -rf "$home"
echo "setup: $python cannot make virtual environments: install the package python3-venv (Debian, Ubuntu), uv or virtualenv" >&2
exit 1
