#!/usr/bin/env bash
# Installs the programs that the tests run against, or with the word "torture" those
# that the torture does, and only those that are missing. It never leaves a test
# without its program: what it cannot install it names in one line, and fails.
set -euo pipefail

missing=()

# need COMMAND PACKAGE…: the packages that bring a command.
need() {
	command -v "$1" >/dev/null || missing+=("${@:2}")
}

if [ "${1:-}" = torture ]; then
	what="the torture needs"
	need slowhttptest slowhttptest # thousands of slow clients
	need nginx nginx-light # proxies in front, which read requests their own ways
	need haproxy haproxy
	need ip iproute2 # a network of our own, to cut
	need taskset util-linux # keeps attackers to a processor of their own
else
	what="the tests need"
	need mosquitto_pub mosquitto-clients # a real MQTT client
	need curl curl # pastes what the demo prints
	need chromium chromium # a real browser reads the documentation
	need npm npm # brings axe-core, which judges the page
	need zsh zsh # completes commands,
	need fish fish # and so does this
	need node nodejs # runs the page's JavaScript samples
	need python3 python3 # and its Python samples
	need promtool prometheus # judges metrics and alerts, and watches a service
	need systemd-analyze systemd # judges the systemd unit
	need ss iproute2 # who is connected, as docs/alerts.md asks

	# The race detector is linked by a C compiler, against the C library's headers.
	if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' |
		$(go env CC) -x c -o /dev/null - 2>/dev/null; then
		missing+=(gcc libc6-dev)
	fi
fi

# programs installs what npm brings, in the versions of tools/npm: linters of OpenAPI
# documents, and the compiler of TypeScript. It goes where neither git nor go looks.
programs() {
	local tools at
	tools=$(dirname "$0")/../tools/npm
	at=$(dirname "$0")/../.cache/npm
	if [ "$what" != "the tests need" ] || cmp -s "$tools/package-lock.json" "$at/node_modules/installed"; then
		return
	fi
	mkdir -p "$at"
	cp "$tools"/*.json "$tools/.npmrc" "$at"
	# A registry fails at times.
	npm ci --prefix "$at" --no-audit --no-fund || { sleep 5 && npm ci --prefix "$at" --no-audit --no-fund; }
	cp "$tools/package-lock.json" "$at/node_modules/installed"
}

if [ ${#missing[@]} -eq 0 ]; then
	programs
	exit 0
fi

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "$what ${missing[*]}: run as root 'apt-get install -y ${missing[*]}', then try again" >&2
	exit 1
fi

# What is installed is for the tests: none of it may start as a service.
if [ ! -e /usr/sbin/policy-rc.d ]; then
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
fi

install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" </dev/null
}

# Package lists may be absent or out of date, and mirrors fail at times: refresh
# the lists and try once more.
echo "$what ${missing[*]}: installing"
if [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -print -quit 2>/dev/null)" ] || ! install; then
	apt-get update || apt-get update
	install || { sleep 5 && install; }
fi
programs
