#!/usr/bin/env bash
# Checks the subjects of all commits since the rule was introduced: `package: imperative verb
# object`, at most 72 characters. Prints the subjects that break the rule.
set -euo pipefail
since=49b54dc1dbc85b785cbcad94049eea70e3d1b612
git cat-file -e "$since^{commit}" 2>/dev/null || exit 0 # a shallow clone
wrong=$(git log --no-merges --format='%h %s' "$since..HEAD" |
	grep -vE '^[0-9a-f]+ [a-z.][a-z0-9/., -]*: [a-z][a-z-]+ .+$' || true)
long=$(git log --no-merges --format='%h %s' "$since..HEAD" | awk '{ s = $0; sub(/^[^ ]+ /, "", s) } length(s) > 72')
if [ -n "$wrong$long" ]; then
	printf 'subjects of commits are "package: imperative verb object" in 72 characters:\n%s\n' "$wrong$long" >&2
	exit 1
fi
