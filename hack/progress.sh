#!/usr/bin/env bash
# Runs a command that may take minutes, and says every 20 seconds that it still
# runs. Its output and exit code are the command's.
set -u
"$@" &
command=$!
trap 'kill "$command" 2>/dev/null' INT TERM
started=$SECONDS
while sleep 1; kill -0 "$command" 2>/dev/null; do
	elapsed=$((SECONDS - started))
	if ((elapsed % 20 == 0 && elapsed > 0)); then echo "  still building after ${elapsed}s"; fi
done
wait "$command"
