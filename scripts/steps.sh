# Steps of a script: each is announced, timed, and named in the verdict if it fails. Sourced.

declare -a steps_done=()
step_now=""

# Runs a command as a step.
run_step() {
  local began=$SECONDS
  step_now="$*"
  printf '\n== %s\n' "$step_now"
  "$@"
  steps_done+=("$(printf '%5s s  %s' "$((SECONDS - began))" "$step_now")")
}

# Runs scripts one after another beside the steps that follow, until wait_beside.
start_beside() {
  beside_log=$(mktemp "${TMPDIR:-/tmp}/tenant-control-beside.XXXXXX")
  # A group of its own, so that all of it can be stopped.
  setsid bash -c 'set -euo pipefail
    source scripts/steps.sh
    trap '\''[ "$?" -eq 0 ] || printf "\nFAILED: %s\n" "$step_now"'\'' EXIT
    for script in "$@"; do run_step "$script"; done
    printf "\n"
    printf "%s\n" "${steps_done[@]}"' beside "$@" >"$beside_log" 2>&1 &
  beside=$!
}

# Waits for what start_beside started, and shows what it said.
wait_beside() {
  local status=0
  wait "$beside" || status=$?
  beside=""
  cat "$beside_log"
  return "$status"
}

# Ends what start_beside started, if it still runs.
stop_beside() {
  [ -z "${beside:-}" ] || { kill -- -"$beside" 2>/dev/null && wait "$beside" || true; }
  [ -z "${beside_log:-}" ] || rm -f "$beside_log"
}

# $1: the status the script ends with.
print_verdict() {
  printf '\n'
  [ "${#steps_done[@]}" -eq 0 ] || printf '%s\n' "${steps_done[@]}"
  if [ "$1" -eq 0 ]; then
    printf 'PASSED in %s s\n' "$SECONDS"
  else
    printf 'FAILED after %s s, in: %s\n' "$SECONDS" "${step_now:-start}"
  fi
}
