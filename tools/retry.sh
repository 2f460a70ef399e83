#!/usr/bin/env bash
# Run a command that downloads, up to three times: `retry.sh WHAT COMMAND...`; WHAT is named in what it prints.
# For downloads only: a test that needs a second try hides something.
set -u

what=$1
shift
for pause in 10 30 0; do
    echo "Fetching $what: $*"
    "$@" && exit 0
    code=$?
    [ $pause = 0 ] || { echo "Fetching $what failed with $code; again in $pause s" >&2; sleep $pause; }
done
echo "Fetching $what failed three times" >&2
exit "$code"
