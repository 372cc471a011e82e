#!/usr/bin/env bash
# Checks the code that the modules in the given directories call for known vulnerabilities.
#
#   VULNDB=URL     the database: https://vuln.go.dev by default, or file:///DIR with a copy
#                  (https://vuln.go.dev/vulndb.zip, unpacked, or OSV files)
#   VULN=offline   skips the check, and says so
#   VULN=optional  skips it, and says so, if the database cannot be reached
#
# A database that cannot be read is a failure: a check that was skipped must not look like a pass.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
db=${VULNDB:-https://vuln.go.dev}

fail() {
	echo "$1: give a copy of the data (VULNDB=file:///DIR), or go without the check (VULN=offline)" >&2
	exit 1
}

case ${VULN:-} in
'') ;;
optional)
	if [[ $db == https:* ]] && ! curl -fsS -o /dev/null --max-time 20 "$db/index/db.json" 2>/dev/null; then
		echo "known vulnerabilities were NOT looked for: there are no data at $db" >&2
		exit 0
	fi
	;;
offline)
	echo "known vulnerabilities were NOT looked for: VULN=offline" >&2
	exit 0
	;;
*)
	echo "VULN may be offline or optional, or not set" >&2
	exit 1
	;;
esac
case $db in
file:///*)
	test -n "$(find "${db#file://}" -name '*.json' -print -quit 2>/dev/null)" || fail "there are no vulnerability data at $db"
	;;
esac
govulncheck=$(GOWORK=off go -C "$top/tools/lint" tool -n govulncheck)
for dir in "$@"; do
	# Only the service and its client are in go.work.
	case $(realpath "$dir") in "$top" | "$top/client") unset GOWORK ;; *) export GOWORK=off ;; esac
	said=$(cd "$dir" && timeout 300 "$govulncheck" -db "$db" ./... 2>&1) && code=0 || code=$?
	case $code in
	0) ;;
	3) # vulnerabilities were found
		echo "$said" >&2
		exit 3
		;;
	*)
		echo "$said" >&2
		fail "known vulnerabilities could not be looked for in $dir with the data of $db"
		;;
	esac
done
