#!/usr/bin/env bash
# Run tests on every Python from 3.11 on that is installed: on the PATH, or by pyenv.
# Each has an environment of its own below build/pythons, which is made once.
#
#     tools/test_pythons.sh [ARGUMENTS OF PYTEST]
set -euo pipefail
cd "$(dirname "$0")/.."

tests=("$@")
((${#tests[@]})) || tests=(tests/unit tests/contract)
failed=() seen=''
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python $(compgen -c python3. | sort -u); do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  [[ $version =~ ^3\.(1[1-9]|[2-9][0-9])$ && " $seen " != *" $version "* ]] || continue
  seen+=" $version"
  home="build/pythons/$version"
  if [[ ! -e $home/.complete ]]; then
    echo "python $version: installing into $home"
    "$python" -m venv "$home"
    "$home/bin/python" -m pip --quiet --disable-pip-version-check install --editable '.[dev,fast]'
    touch "$home/.complete"
  fi
  echo "python $version: ${tests[*]}"
  "$home/bin/python" -m pytest -p no:cacheprovider "${tests[@]}" || failed+=("$version")
done
echo "tested on:$seen; failed on: ${failed[*]:-none}"
((${#failed[@]} == 0))
