#!/usr/bin/env bash
# version.sh VERSION: names a version, such as v0.2.0 or v0.2.0-rc.1, in the files of all packages
# and in the OpenAPI documents. Between releases, they name the next one.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?the version, for example v0.2.0}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$ ]] || { echo "a version is v0.2.0 or v0.2.0-rc.1" >&2; exit 1; }
sed -i -E "s|(/client) v[0-9][^ ]*|\1 $version|" go.mod go.work
sed -i -E "s|(\"version\": )\"[0-9][^\"]*\"|\1\"${version#v}\"|" clients/typescript/package.json docs/openapi-*.json internal/ingest/docs/*.json \
	internal/query/docs/openapi.json.tmpl internal/admin/openapi_test.go
sed -i -E "s#(client@|\*\*Version:\*\* |by carstate |VERSION=)v[0-9][^<\` ]*#\1$version#" README.md docs/{first-hour,operations}.md internal/query/docs/page.html.tmpl
python=${version#v} python=${python/-rc./rc}
sed -i -E "s|^(version = ).*|\1\"$python\"|" clients/python/pyproject.toml
