#!/usr/bin/env bash
# Runs the rules over every road fleet in a folder, three times each, and prints the tables: with
# all cars reporting often, with a fifth of them reporting rarely, and with all of them without
# positions.
set -euo pipefail
binary=$1 folder=$2

for fleet in "$folder"/*/fcd.csv.gz; do
	road=${fleet%/fcd.csv.gz}
	[ -f "$fleet" ] && [ -f "$road/labels.csv.gz" ] || continue
	learn=()
	[ ! -f "$road/learn.csv.gz" ] || learn=(--learn "$road/learn.csv.gz")
	for how in "--every 5s" "--every 10s --share 0.2" "--every 5s --without-positions"; do
		printf '\n== %s, %s\n\n' "${road##*/}" "$how"
		# shellcheck disable=SC2086 # several words
		"$binary" evaluate --fleet "$fleet" --truth "$road/labels.csv.gz" "${learn[@]}" $how
	done
done
