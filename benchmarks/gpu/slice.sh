# Sourced by every block of QUEUE.md: installs what the machine lacks, and makes a run continue from slice to slice.
# A run lives in runs/NAME; what travels is NAME.tar.aa, NAME.tar.ab, ... of 15 MiB each: out through $OUT, back in through carry/.
export GRAPHLOG_MIRROR="$PWD/carry/mirror" PYTHONPATH="$PWD/src" PYTHONUNBUFFERED=1
shopt -s nullglob
wheels=(carry/wheels/*.whl)
[ ${#wheels[@]} -eq 0 ] || python3 -m pip install -q --no-index --no-deps "${wheels[@]}" || exit
graphlog() { timeout --signal=INT --kill-after=60 "${LIMIT:-420}" python3 -m graphlog "$@"; }

# unpack NAME: put together what the last slice left, unless this machine has it still
unpack() {
  mkdir -p runs
  local pieces=("carry/$1.tar."*)
  [ -d "runs/$1" ] || [ ${#pieces[@]} -eq 0 ] || cat "${pieces[@]}" | tar -x -C runs
}

# resumed NAME: --resume where there is something to resume
resumed() { [ ! -e "runs/$1/config.toml" ] || echo --resume; }

# pack NAME [tar options]: a finished model needs no checkpoint, any other its newest
pack() {
  local folder steps
  for folder in $(find "runs/$1" -type d -name checkpoint); do
    steps=("$folder"/step-*[0-9])
    [ ${#steps[@]} -eq 0 ] || [ -e "$(dirname "$folder")/model.safetensors" ] || unset 'steps[-1]'
    rm -rf "${steps[@]}"
  done
  tar -c -C runs "${@:2}" "$1" | split -b 15M - "$OUT/$1.tar."
}
