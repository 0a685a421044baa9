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
