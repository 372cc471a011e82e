#!/usr/bin/env bash
# Looks for known vulnerabilities in what the modules in the directories given
# call. The data comes from vuln.go.dev or, where that cannot be reached, as the
# module golang.org/x/vulndb from wherever modules come from. CARSTATE_VULNDB names
# a copy of that module's directory in place of both. Without any of them nothing
# can be looked for: it says so in one line, and that is no failure.
set -euo pipefail

tools=$(cd "$(dirname "$0")/../tools/lint" && pwd)/go.mod

# look checks a directory against the data given, or vuln.go.dev. What it finds
# in what we call is exit 3.
look() {
	(cd "$1" && timeout 300 go tool -modfile="$tools" govulncheck "${@:2}" ./...)
}

# osv prints the directory of the data in a copy of the module.
osv() {
	local dir=$1/data/osv
	test -n "$(find "$dir" -maxdepth 1 -name 'GO-*.json' -print -quit 2>/dev/null)" && echo "$dir"
}

data=()
if [ -n "${CARSTATE_VULNDB:-}" ]; then
	dir=$(osv "$CARSTATE_VULNDB") || { echo "CARSTATE_VULNDB names no copy of golang.org/x/vulndb: there is no data/osv in it" >&2; exit 1; }
	data=(-db "file://$dir")
else
	said=$(look "$1" 2>&1) && code=0 || code=$?
	case $code:$said in
	0:*) shift ;;
	*:*vuln.go.dev* | 124:*) # it cannot be reached, or not in time
		copy=$(cd / && timeout 120 go mod download -json golang.org/x/vulndb@latest 2>/dev/null | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p') || copy=
		if [ -z "$copy" ] || ! dir=$(osv "$copy"); then
			echo "vulnerabilities were NOT looked for: neither vuln.go.dev nor the module golang.org/x/vulndb can be reached (CARSTATE_VULNDB can name a copy)" >&2
			exit 0
		fi
		data=(-db "file://$dir")
		;;
	*)
		echo "$said" >&2
		exit "$code"
		;;
	esac
fi
for dir in "$@"; do
	said=$(look "$dir" "${data[@]}" 2>&1) || { code=$?; echo "$said" >&2; exit "$code"; }
done
