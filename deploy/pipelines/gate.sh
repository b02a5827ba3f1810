#!/bin/sh
# Asks for a gate and waits: gate.sh CANDIDATE_URL PRODUCTION_URL. Ends with 0 for a pass only, and with the gate's own code.
# With a route, `specwatch gate ROUTE --candidate "$1" --promote --by ci --link URL` also proposes the next baselines and announces the bump.
# `--plain URL` of the candidate without speculation, with --min-speedup 1.1 and --require-lossless twin, asks for speed and outputs too.
set -u
code=0
specwatch gate --candidate "$1" --against "$2" --prompts 24 --timeout 15m --format json --out gate.json || code=$?
case $code in
  0) echo "passed: promote" ;;
  10) echo "regression: do not promote" >&2 ;;
  11) echo "cannot tell: give it more prompts or time, or ask a person" >&2 ;;
  *) echo "not measured (exit code $code): fix that first" >&2 ;;
esac
exit "$code"
