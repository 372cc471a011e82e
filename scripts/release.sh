#!/usr/bin/env bash
# Makes a release of a commit in a folder: for each architecture the program and the list of its
# modules; the manual page, the completions, the licence, the notices and the changes; and the
# checksums of all files. The build uses an archive of the commit, without git. So it contains no
# file that is not committed, and `make reproduce` gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 commit=$2 dist=$3
shift 3

fail() { echo "$*" >&2; exit 1; }
[[ $version =~ ^[0-9A-Za-z][0-9A-Za-z._+-]*$ ]] || fail "VERSION is a tag such as v0.1.0"
[[ $version != *-dirty ]] || fail "there are changes that no commit has: commit them, or name the version of the last commit, such as VERSION=v0.1.0"
[[ ! -e $dist || -e $dist/SHA256SUMS ]] || fail "$dist holds something else than a release: remove it, or set DIST"
git cat-file -e "$commit^{commit}" 2>/dev/null || fail "a release is made of a commit of this repository"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tree=$tmp/tree out=$tmp/dist
mkdir "$tree" "$out"
git archive "$commit" | tar -x -C "$tree"

section=Unreleased
[[ ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || section=${version#v}
awk -v head="## [$section]" '/^## /{ found = index($0, head) == 1 } found' "$tree/CHANGELOG.md" > "$out/CHANGES"
test -s "$out/CHANGES" || fail "CHANGELOG.md has no section [$section]: give [Unreleased] that name and the day, and commit"

for arch; do
	program=$out/carstate-$version-linux-$arch
	GOOS=linux GOARCH=$arch make -s -C "$tree" build VERSION="$version" COMMIT="$commit" BINARY="$program"
	GOWORK=off go -C "$tree/deploy/sbom" run . "$program" "$version" "$commit" > "$program.cdx.json"
done
make -s -C "$tree" build VERSION="$version" COMMIT="$commit" BINARY="$tmp/carstate" # of this machine, to ask it
"$tmp/carstate" man > "$out/carstate.1"
for shell in bash zsh fish; do
	"$tmp/carstate" completion "$shell" > "$out/carstate.$shell"
done
cp "$tree/LICENSE" "$tree/NOTICE" "$out"
(cd "$out" && LC_ALL=C sha256sum -- * > "$tmp/SHA256SUMS" && mv "$tmp/SHA256SUMS" .)

rm -rf "$dist"
mv "$out" "$dist"
cat "$dist/SHA256SUMS"
