#!/usr/bin/env bash
# Prints how much there is to read: lines of Go by what they are for, and words of all comments and
# documents. Fails with one line for each row that is above its number in scripts/size.budget, and
# for each number there that is above that of the commit before.
# Every Go file is in one row. The plot is of the server, because the console draws with it, too.
set -euo pipefail
cd "$(dirname "$0")/.."

git() { command git -c safe.directory='*' "$@"; } # the checkout may belong to another user, as in a container

{ git show HEAD^:scripts/size.budget 2>/dev/null || :; } | awk '
FILENAME != "scripts/size.budget" { was[$1] = $2; next }
$1 !~ /^#/ && $1 in was && $2 > was[$1] { print "size: scripts/size.budget raises " $1; raised = 1 }
END { exit raised }' - scripts/size.budget >&2

git ls-files --cached --others --exclude-standard -- '*.go' '*.md' | awk '
FILENAME == "scripts/size.budget" { if ($1 !~ /^#/ && NF) budget[$1] = $2; next }
{
	file = $0
	row = "other"
	if (file ~ /\.md$/) row = "documents"
	else if (file ~ /^torture\//) row = "torture"
	else if (file ~ /^bench\//) row = "bench"
	else if (file !~ /^(cmd|internal|client)\//) row = "other"
	else if (file ~ /_test\.go$/) row = "tests"
	else if (file ~ /(test|testkit|process)\/[^\/]*$/) row = "test_support"
	else if (file ~ /^internal\/lab\//) row = "laboratory"
	else if (file !~ /^client\//) row = "server"
	while ((getline line < file) > 0) {
		if (row == "documents") sum[row] += split(line, words)
		else {
			sum[row]++
			if (match(line, /(^|[ \t])\/\/( |$)/)) sum["comments"] += split(substr(line, RSTART + RLENGTH), words)
		}
	}
	close(file)
}
END {
	n = split("server laboratory test_support tests torture bench other comments documents", rows)
	for (i = 1; i <= n; i++) {
		row = rows[i]
		unit = i > n - 2 ? "words" : "lines"
		known = row in budget
		printf "%-12s %7d %s", row, sum[row], unit
		if (known) printf ", budget %7d", budget[row]
		print ""
		if (known && sum[row] > budget[row])
			over = over sprintf("size: %s has %d %s, %d above the budget of %d in scripts/size.budget: make it smaller\n",
				row, sum[row], unit, sum[row] - budget[row], budget[row])
		delete budget[row]
	}
	for (row in budget) over = over "size: scripts/size.budget names the row " row ", which does not exist\n"
	printf "%s", over > "/dev/stderr"
	exit over != ""
}' scripts/size.budget -
