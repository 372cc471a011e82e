#!/usr/bin/env bash
# module-path.sh PATH: gives the project the module path PATH, in all its modules.
set -euo pipefail
cd "$(dirname "$0")/.."
new=${1:?the module path, for example example.org/carstate}
old=$(sed -n 's/^module //p' go.mod)
git grep -lF "$old" -- '*.go' '*go.mod' '*go.work' Makefile '*.md' '*.sh' '*.txt' '*.py' '*.tmpl' ':!CHANGELOG.md' |
	OLD=$old NEW=$new xargs perl -pi -e '
		# A path, but not the end of another one such as cmd/carstate/.
		s{(?<![\w./-])\Q$ENV{OLD}\E(?=/(?:internal|client|cmd|bench|torture|deploy|tools)\b|/")}{$ENV{NEW}}g;
		s{^((?:module|replace|require)?\s*)\Q$ENV{OLD}\E(?= => | v\d|$)}{$1$ENV{NEW}} if $ARGV =~ /go\.mod$/;'
go list -f '{{.Dir}}' ./... ./client | xargs gofmt -w
for m in bench torture; do gofmt -w "$m"; done
