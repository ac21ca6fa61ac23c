#!/usr/bin/env bash
# Run tests on every Python from 3.11 on that is installed: on the PATH, or by pyenv.
# Each has an environment of its own below build/pythons, brought up to date with pyproject.toml.
#
#     tools/test_pythons.sh [ARGUMENTS OF PYTEST]
set -euo pipefail
cd "$(dirname "$0")/.."

tests=("$@")
((${#tests[@]})) || tests=(tests/unit tests/contract)

environment() { # FOLDER PYTHON
  PYTHON=$2 tools/venv.sh "$1" || return
  [[ $1/.complete -nt pyproject.toml ]] && return
  echo "python $version: installing into $1"
  "$1/bin/python" -m pip --quiet --disable-pip-version-check install --editable '.[dev,fast]' || return
  touch "$1/.complete"
}

failed=() seen=''
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python $(compgen -c python3. | sort -u); do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  [[ $version =~ ^3\.(1[1-9]|[2-9][0-9])$ && " $seen " != *" $version "* ]] || continue
  seen+=" $version"
  home="build/pythons/$version"
  echo "python $version: ${tests[*]}"
  environment "$home" "$python" && "$home/bin/python" -m pytest -p no:cacheprovider "${tests[@]}" ||
    failed+=("$version")
done
[[ $seen ]] || { echo 'no Python from 3.11 on is installed: neither on the PATH nor by pyenv' >&2; exit 1; }
echo "tested on:$seen; failed on: ${failed[*]:-none}"
((${#failed[@]} == 0))
