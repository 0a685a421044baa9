# A server of a script's own on a new store in a temporary folder. Source it, set a trap on end_server, call make_folder and
# use_binary, then start_server.
# shellcheck shell=bash

target=${CARGO_TARGET_DIR:-target}
folder=""
server=""

# $1: what the folder is for.
make_folder() {
  folder=$(mktemp -d "${TMPDIR:-/tmp}/tenant-control-$1.XXXXXX")
  store=(--data-dir "$folder/data")
}

# Built with the tests, although none is run: built alone, it and most crates that it needs would have other features than
# when they are built for tests, and be built once more.
use_binary() {
  cargo test --quiet --workspace --no-run
  binary=$target/debug/tenant-control
}

# The value of a field of the JSON on stdin.
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# $1: what is awaited; $2: its process; the rest: a command that prints something as soon as it is there.
await() {
  local what=$1 process=$2 found
  shift 2
  for _ in $(seq 600); do
    found=$("$@")
    [ -z "$found" ] || { echo "$found"; return 0; }
    kill -0 "$process" 2>/dev/null || break
    sleep 0.1
  done
  echo "$what did not start" >&2
  return 1
}

# More options of `serve` may be given. Leaves its address in $url.
start_server() {
  : >"$folder/server.out"
  "$binary" serve --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --log-format json "${store[@]}" "$@" \
    >"$folder/server.out" 2>"$folder/server.log" &
  server=$!
  url=$(await "the server" "$server" sed -n 's/.* is reached at //p' "$folder/server.out")
}

# Ends processes by their numbers, and waits for them.
end_processes() {
  local process
  for process in "$@"; do
    [ -z "$process" ] || { kill "$process" 2>/dev/null && wait "$process" || true; }
  done
}

# $1: the status the script ends with. Says what the server complained of if that is a failure, and removes the folder.
end_server() {
  end_processes "$server"
  if [ "$1" -ne 0 ] && [ -n "$folder" ] && [ -s "$folder/server.log" ]; then
    echo "warnings and errors of the server:" >&2
    grep -v -e '"level":"INFO"' -e '"level":"DEBUG"' "$folder/server.log" | tail -n 20 >&2 || true
  fi
  [ -z "$folder" ] || rm -rf "$folder"
}
