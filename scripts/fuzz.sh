#!/usr/bin/env bash
# Runs every fuzz target of the tree for FUZZTIME (default 30s) each, because Go fuzzes one target
# at a time. A failing input is stored in the package's testdata/fuzz: fix the fault and commit that
# file, which is then a test case.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort)
if [ -z "$targets" ]; then
	echo "no fuzz target found" >&2
	exit 1
fi

failed=()
while IFS=: read -r file func; do
	name=${func#func }
	dir=$(dirname "$file")
	echo "== $dir $name, ${FUZZTIME:-30s}"
	go -C "$dir" test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" . </dev/null || failed+=("$dir $name")
done <<<"$targets"

if [ ${#failed[@]} -gt 0 ]; then
	printf 'fuzzing failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
