#!/usr/bin/env bash
# Installs the missing programs that the tests run against, or with the word "torture" those that
# the torture runs against. If it cannot install all of them, it names them in one line and fails, so
# that no test runs without its program.
set -euo pipefail

missing=()

# need COMMAND PACKAGE…: the packages that provide a command.
need() {
	command -v "$1" >/dev/null || missing+=("${@:2}")
}

if [ "${1:-}" = torture ]; then
	what="the torture needs"
	need nginx nginx-light # proxies in front of carstate, which parse requests differently
	need haproxy haproxy
	need ip iproute2 # a network of our own that can be cut
else
	what="the tests need"
	need mosquitto_pub mosquitto-clients # a real MQTT client
	need mosquitto mosquitto # a real MQTT broker, whose bridge sends telemetry
	/usr/bin/python3 -c 'import paho.mqtt.client' 2>/dev/null || missing+=(python3-paho-mqtt)
	need curl curl # runs the commands that the demo prints
	need chromium chromium # a real browser for the pages
	need npm npm # installs the programs of tools/npm
	need zsh zsh # tests completion of commands
	need fish fish # tests completion of commands
	need node nodejs # runs the JavaScript samples of the documentation
	need python3 python3 # runs its Python samples
	python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv) # installs its client
	need promtool prometheus # checks metrics and alerts, and scrapes a node
	need systemd-analyze systemd # checks the systemd unit
	need ss iproute2 # lists connections, as docs/metrics.md describes

	# The race detector needs a C compiler to link, and the headers of the C library.
	if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' |
		$(go env CC) -x c -o /dev/null - 2>/dev/null; then
		missing+=(gcc libc6-dev)
	fi
fi

# programs installs the npm programs in the versions of tools/npm: linters of OpenAPI documents,
# axe-core, which checks the accessibility of pages, and the TypeScript compiler. The directory is
# ignored by git and by go.
programs() {
	local tools at
	tools=$(dirname "$0")/../tools/npm
	at=$(dirname "$0")/../.cache/npm
	if [ "$what" != "the tests need" ] || cmp -s "$tools/package-lock.json" "$at/node_modules/installed"; then
		return
	fi
	mkdir -p "$at"
	cp "$tools"/*.json "$tools/.npmrc" "$at"
	# A registry fails occasionally.
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

# The packages are only for tests, so none of them may start a service.
if [ ! -e /usr/sbin/policy-rc.d ]; then
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
fi

install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" </dev/null
}

# Package lists may be missing or out of date, and mirrors fail occasionally: refresh the lists and
# try once more.
echo "$what ${missing[*]}: installing"
if [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -print -quit 2>/dev/null)" ] || ! install; then
	apt-get update || apt-get update
	install || { sleep 5 && install; }
fi
programs
