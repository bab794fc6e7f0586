#!/usr/bin/env bash
# Puts prometheus and promtool into a directory: those of the PATH, or those of Debian's package, which is unpacked and
# not installed, so that no service starts.
set -euo pipefail
to=$1
mkdir -p "$to"
[ -x "$to/prometheus" ] && [ -x "$to/promtool" ] && exit
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
	ln -sf "$(command -v prometheus)" "$(command -v promtool)" "$to"
	exit
fi
if ! command -v apt-get >/dev/null; then
	echo "make monitoring needs prometheus and promtool (2.42 or later) in the PATH: see https://prometheus.io/download" >&2
	exit 1
fi
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
cd "$unpacked"
apt-get download -q prometheus >/dev/null 2>&1 || { apt-get update -q >/dev/null && apt-get download -q prometheus >/dev/null; }
dpkg-deb -x prometheus_*.deb .
mv usr/bin/prometheus usr/bin/promtool "$to"
