#!/usr/bin/env bash
# Makes a release of a commit in a folder: for each architecture the program and the list of its
# modules; the Go modules as files of a module proxy, and the clients for pip and npm; the
# completions, the licence, the notices and the changes; and the checksums of all files. The build
# uses an archive of the commit, without git. So it contains no file that is not committed, and
# `make reproduce` gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 commit=$2 dist=$3
shift 3

fail() { echo "$*" >&2; exit 1; }
[[ $version != *-dirty ]] || fail "there are changes that no commit has: commit them, or name the version of the last commit, such as VERSION=v0.2.0"
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$ ]] || fail "VERSION is a tag: make release VERSION=v0.2.0 or, before CHANGELOG.md has that section, VERSION=v0.2.0-rc.1"
tsc=$PWD/.cache/npm/node_modules/.bin
[[ -x $tsc/tsc ]] || fail "the TypeScript compiler is missing: run make setup"
[[ ! -e $dist || -e $dist/SHA256SUMS ]] || fail "$dist holds something else than a release: remove it, or set DIST"
git cat-file -e "$commit^{commit}" 2>/dev/null || fail "a release is made of a commit of this repository"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tree=$tmp/tree out=$tmp/dist
mkdir "$tree" "$out"
git archive "$commit" | tar -x -C "$tree"

# The packages of a candidate name another version than the commit.
pack=$tmp/pack
cp -r "$tree" "$pack"
"$pack/scripts/version.sh" "$version"
[[ $version == *-rc.* ]] || diff -r "$tree" "$pack" >&2 ||
	fail "the commit names another version: run scripts/version.sh $version, commit and tag"

section=Unreleased
[[ $version == *-rc.* ]] || section=${version#v}
awk -v head="## [$section]" '/^## /{ found = index($0, head) == 1 } found' "$tree/CHANGELOG.md" > "$out/CHANGES"
test -s "$out/CHANGES" || fail "CHANGELOG.md has no section [$section]: give [Unreleased] that name and the day, and commit, or make a candidate, such as v0.2.0-rc.1"

cp "$pack/LICENSE" "$pack/client" # as go does for a module in a folder of a repository
GOWORK=off go -C "$tree/deploy/proxy" run . "$out/go" "$version" "$(git log -1 --format=%cI "$commit")" "$pack" "$pack/client"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$pack/clients/python python3 -c 'import backend, sys; backend.build_wheel(sys.argv[1])' "$out"
cp "$pack/LICENSE" "$pack/clients/typescript"
(cd "$pack/clients/typescript" && PATH=$tsc:$PATH npm pack --silent --pack-destination "$out" >/dev/null)

for arch; do
	program=$out/carstate-$version-linux-$arch
	GOOS=linux GOARCH=$arch make -s -C "$tree" build VERSION="$version" COMMIT="$commit" BINARY="$program"
	GOWORK=off go -C "$tree/deploy/sbom" run . "$program" "$version" "$commit" > "$program.cdx.json"
done
make -s -C "$tree" build VERSION="$version" COMMIT="$commit" BINARY="$tmp/carstate" # of this machine, to ask it
for shell in bash zsh fish; do
	"$tmp/carstate" completion "$shell" > "$out/carstate.$shell"
done
cp "$tree/LICENSE" "$tree/NOTICE" "$out"
(cd "$out" && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum -- > "$tmp/SHA256SUMS" && mv "$tmp/SHA256SUMS" .)

rm -rf "$dist"
mv "$out" "$dist"
cat "$dist/SHA256SUMS"
