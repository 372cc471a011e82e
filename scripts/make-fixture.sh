#!/usr/bin/env bash
# Makes the data directory that the next release must still open:
#
#   scripts/make-fixture.sh BINARY NAME
#
# BINARY is the released program, NAME goes into the file name, such as v1.2.0.
# The result is cmd/carstate/testdata/upgrade/NAME.tar.gz: the directory as the
# program left it, and expected.json, what it answered. Needs curl and jq.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,8s/^# \?//p' "$0" >&2; exit 2; }
binary=$(realpath "$1") name=$2
out=$(realpath "$(dirname "$0")/..")/cmd/carstate/testdata/upgrade/$name.tar.gz
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
export CARSTATE_DATA_DIR=$work/data

# serve starts the program and waits until it is ready.
serve() {
	: > "$work/log"
	"$binary" serve --max-age 87600h --partitions 4 --log-format json \
		--query-addr 127.0.0.1:0 --ingest-addr 127.0.0.1:0 --mqtt-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0 2> "$work/log" &
	pid=$!
	for _ in $(seq 600); do
		addr() { jq -r --arg for "$1" 'select(.msg == "listening" and .for == $for).address' "$work/log" 2>/dev/null || true; }
		CARSTATE_ADMIN_ADDR=$(addr admin-addr) CARSTATE_QUERY_ADDR=$(addr query-addr) ingest=$(addr ingest-addr)
		export CARSTATE_ADMIN_ADDR CARSTATE_QUERY_ADDR
		if [ -n "$CARSTATE_ADMIN_ADDR" ] && curl -fs "http://$CARSTATE_ADMIN_ADDR/readyz" > "$work/ready"; then return; fi
		kill -0 "$pid" || { cat "$work/log" >&2; exit 1; }
		sleep 0.1
	done
	exit 1
}

stop() { kill "$pid"; wait "$pid"; pid=; }

# send SPEED VID… sends three minutes of a steady drive that ends now.
send() {
	local now speed=$1; now=$(date +%s)000; shift
	for i in $(seq 0 180); do for vid; do
		printf '{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":%s,"Vehicle.OBD.ThrottlePosition":18,"Vehicle.OBD.EngineSpeed":2000}}\n' \
			"$vid" $((now - (180 - i) * 1000)) "$speed"
	done; done | curl -fs -H "Authorization: Bearer $key" -H 'Content-Type: application/x-ndjson' --data-binary @- "http://$ingest/v1/telemetry" > "$work/sent"
}

serve
token=$("$binary" token issue --developer Ada --vehicles Steady,Slow,Waiting --expires never --json)
revoked=$("$binary" token issue --developer Bob --vehicles all --json)
"$binary" token revoke "$(jq -r .id <<< "$revoked")" > "$work/quiet"
for i in $(seq 600); do echo "Fleet$i"; done > "$work/fleet"
large=$("$binary" token issue --developer Cleo --vehicles "@$work/fleet" --json)
key=$("$binary" source add gateway --vehicles all)
"$binary" source add removed --vehicles Steady > "$work/quiet"
"$binary" source remove removed > "$work/quiet"
send 80 Steady
send 25 Slow
secret=$(jq -r .access_token <<< "$token")
ask() { curl -fs "http://$CARSTATE_QUERY_ADDR/api/ic/$1?access_token=$secret&vid=$2"; }
for _ in $(seq 600); do
	if ask if_dt_tflow_car_driving_state Slow | grep -q '"status":1'; then break; fi
	sleep 0.1
done
answers=$(for vid in Steady Slow; do for op in if_dt_tflow_car_driving_state if_dt_amo_throttle_system; do
	jq -n --arg op "$op" --arg vid "$vid" --arg body "$(ask "$op" "$vid")" '{$op, $vid, $body}'
done; done | jq -s .)
events=$(curl -fs -H "Authorization: Bearer $(cat "$CARSTATE_DATA_DIR/admin.key")" "http://$CARSTATE_ADMIN_ADDR/v1/audit")
stop
# Samples that are acknowledged, and a crash before all of them are folded.
serve
send 80 Waiting $(seq -f Fleet%.0f 10)
kill -9 "$pid"
pid=
rm "$CARSTATE_DATA_DIR/admin.key" # the next start makes another one

# The secrets open nothing but this directory.
jq -n --arg token "$secret" --arg key "$key" --arg revoked "$(jq -r .access_token <<< "$revoked")" --argjson large "$large" \
	--argjson answers "$answers" --argjson events "$events" --arg unfolded Waiting \
	'{$token, $key, $revoked, large_id: $large.id, large_vehicles: ($large.vehicles | length), $answers, $unfolded, events: [$events.events[] | {action, object, detail, outcome}]}' \
	> "$work/expected.json"
mkdir -p "$(dirname "$out")"
tar -C "$work" --sort=name --owner=0 --group=0 -czf "$out" data expected.json
ls -l "$out"
