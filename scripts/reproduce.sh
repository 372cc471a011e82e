#!/usr/bin/env bash
# Builds the commit that a binary names, in another folder and without git, and compares the two
# byte by byte. It uses nothing of earlier builds, unless a second argument names a build cache,
# which saves CI some minutes.
set -euo pipefail
binary=$(realpath "$1")
cache=${2:-}
cd "$(dirname "$0")/.."

said=$("$binary" version --json)
of() { sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" <<<"$said"; }
version=$(of version) commit=$(of commit) go=$(of go)
case $version in
*-dirty) echo "$binary was built from uncommitted files: build it from a clean tree" >&2; exit 1 ;;
esac
git cat-file -e "$commit^{commit}" 2>/dev/null ||
	{ echo "$binary was built from commit $commit, which this repository does not have: run git fetch, or use its repository" >&2; exit 1; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/elsewhere"
git archive "$commit" | tar -x -C "$tmp/elsewhere"
GOCACHE=${cache:-$tmp/cache} make -C "$tmp/elsewhere" build \
	GOTOOLCHAIN="$go" VERSION="$version" COMMIT="$commit" BINARY="$tmp/carstate"
cmp "$binary" "$tmp/carstate" || { echo "$binary differs from a build of $commit" >&2; exit 1; }
sha256sum "$binary"
