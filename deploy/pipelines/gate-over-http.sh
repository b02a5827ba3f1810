#!/bin/sh
# The same by a running `specwatch serve`: gate-over-http.sh ROUTE CANDIDATE_URL KEY, with SPECWATCH_URL and SPECWATCH_TOKEN
# (scopes gates:read and gates:write; with "promote": true in the body also bump) set. KEY names this release: asked twice, it is one gate. Needs curl.
set -u
deadline=$(($(date +%s) + ${GATE_SECONDS:-3600}))
ask() {
  curl --fail-with-body --silent --show-error --max-time 10 -H "Authorization: Bearer $SPECWATCH_TOKEN" "$@"
}
gate=$(ask -H "Idempotency-Key: $3" --json "{\"route\": \"$1\", \"candidate\": \"$2\"}" "$SPECWATCH_URL/api/v1/gates") || {
  echo "not asked: $gate" >&2
  exit 13
}
id=$(printf '%s' "$gate" | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
while :; do
  case $gate in
    *'"status":"done"'* | *'"status":"cancelled"'*) break ;;
  esac
  if [ "$(date +%s)" -ge "$deadline" ]; then
    echo "gate $id is not done in time" >&2
    exit 11
  fi
  sleep "${GATE_POLL_SECONDS:-10}"
  # A look that fails is tried again: an answer that is not there is no verdict.
  gate=$(ask "$SPECWATCH_URL/api/v1/gates/$id") || gate=
done
printf '%s\n' "$gate" > gate.json
code=$(printf '%s' "$gate" | sed -n 's/.*"exit_code":\([0-9]*\),.*/\1/p')
echo "gate $id ended with ${code:-13}; see gate.json"
exit "${code:-13}"
