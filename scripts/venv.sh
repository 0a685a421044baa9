# Programs from Python's package index, in a virtual environment below target/; source it and call venv_install.
# shellcheck shell=bash

# $1: the folder; $2: the file with the pinned packages. Returns 3 when there is no index to install from, which is no
# fault of the code under test.
venv_install() {
  local venv=$1 requirements=$2
  cmp -s "$requirements" "$venv/installed.txt" && return
  rm -rf "$venv"
  venv_make "$venv" || { echo "Python 3 with venv is needed (Debian: python3-venv)" >&2; return 1; }
  if "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"; then
    cp "$requirements" "$venv/installed.txt"
    return
  fi
  if ! "$venv/bin/pip" index versions pip >/dev/null 2>&1; then
    echo "SKIPPED: $requirements could not be installed, because the package index cannot be reached from here"
    return 3
  fi
  echo "$requirements could not be installed, although the package index answers" >&2
  return 1
}

# Debian keeps venv in a package of its own.
venv_make() {
  python3 -m venv "$1" >/dev/null 2>&1 && return
  [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return
  echo "Python's venv is missing: installing Debian's package"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null && python3 -m venv "$1"
}
