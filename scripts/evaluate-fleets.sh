#!/usr/bin/env bash
# Runs the rules over every road fleet in CARSTATE_DATA/road, and prints a line for each run: its
# name, macro-F1, F1 of jam, and the share of labels without an answer. The 14 days are drawn from
# the one learning day, 60 % of its cars each, always the same. Fails with a line for each figure
# that is more than .01 worse than in scripts/evaluate.floor.
set -euo pipefail
shopt -s nullglob
binary=$1 folder=${CARSTATE_DATA:-../shared/data}/road floor=${0%/*}/evaluate.floor
if [ ! -d "$folder" ]; then
	echo "evaluate-fleets: THE FLEETS ARE NOT EVALUATED: there is no $folder; set CARSTATE_DATA to its parent" >&2
	exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the line of a run. The arguments are its name and the flags.
run() {
	"$binary" evaluate --json --fleet "$road/fcd.csv.gz" --truth "$road/labels.csv.gz" "${@:2}" |
		awk -v name="${road##*/}/$1" -F '"confusion":|,"sure":|"macro_f1":|"jam":' '{
			split($2, n, /[^0-9]+/) # n[1] is empty: the text begins with [[
			for (i = 2; i <= 13; i++) labels += n[i]
			printf "%-29s %.3f %.3f %.3f\n", name, $4, $5, (n[2] + n[6] + n[10]) / labels
		}'
}

# Prints the lines of a fleet. The argument is its folder.
fleet() {
	local road=$1 days=$work/${1##*/} learn=() drawn=()
	[ ! -f "$road/learn.csv.gz" ] || learn=(--learn "$road/learn.csv.gz")
	run 5s --every 5s "${learn[@]}"
	run 30s --every 30s "${learn[@]}"
	run 60s --every 60s "${learn[@]}"
	run 10s-fifth --every 10s --share 0.2 "${learn[@]}"
	run 5s-without-positions --every 5s --without-positions "${learn[@]}"
	[ -n "${learn[*]}" ] || return 0
	mkdir "$days"
	# A hash in place of rand, whose numbers differ from one awk to another.
	zcat "$road/learn.csv.gz" | awk -F , -v days="$days" '
		function hash(name, day,  h, i) {
			for (i = 1; i <= length(name); i++) h = (h * 31 + index(letters, substr(name, i, 1))) % 1000003
			for (i = 1; i <= 3; i++) h = (h * h + h + day * 7919) % 1000003
			return h / 1000003
		}
		BEGIN { letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" }
		!($1 in sends) { for (d = 1; d <= 14; d++) sends[$1] = sends[$1] (NR == 1 || hash($1, d) < .6) }
		{ for (d = 1; d <= 14; d++) if (substr(sends[$1], d, 1) == 1) print > (days "/" d ".csv") }'
	for d in {1..14}; do drawn+=(--learn "$days/$d.csv"); done
	run 5s-14-days --every 5s "${drawn[@]}"
}

running=()
for f in "$folder"/*/fcd.csv.gz; do
	[ -f "${f%/*}/labels.csv.gz" ] || continue
	fleet "${f%/*}" >"$work/$(basename "${f%/*}").figures" &
	running+=($!)
done
for pid in "${running[@]}"; do wait "$pid"; done
cat /dev/null "$work"/*.figures | tee "$work/all"

awk '
	function worse(what, now, least) {
		if (now >= least - .01 - 1e-9) return
		printf "evaluate-fleets: %s: %s is %.3f, more than .01 worse than %.3f in scripts/evaluate.floor\n",
			$1, what, now < 0 ? -now : now, least < 0 ? -least : least > "/dev/stderr"
		failed = 1
	}
	/^#/ { next }
	FNR == NR { macro[$1] = $2; jam[$1] = $3; none[$1] = $4; next }
	$1 in macro {
		worse("macro-F1", $2, macro[$1]); worse("F1 of jam", $3, jam[$1])
		worse("the share without an answer", -$4, -none[$1])
		delete macro[$1]
	}
	END {
		for (name in macro) {
			print "evaluate-fleets: " name " of scripts/evaluate.floor was not evaluated" > "/dev/stderr"
			failed = 1
		}
		exit failed
	}' "$floor" "$work/all"
