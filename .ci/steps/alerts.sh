#!/usr/bin/env bash
# Alert rules, their unit tests, the scrape configuration and the expressions of the dashboards, by Prometheus' own tool.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v promtool >/dev/null; then
  # Unpacked, not installed: the package would start a server on this machine.
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  chmod 755 "$folder"
  (cd "$folder" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } && dpkg -x prometheus_*.deb unpacked)
  export PATH="$folder/unpacked/usr/bin:$PATH"
fi
promtool check rules deploy/prometheus/alerts.yml
promtool test rules deploy/prometheus/alerts.test.yml
promtool check config deploy/prometheus/prometheus.yml
expressions=$(mktemp)
node scripts/dashboard-expressions.mjs >"$expressions"
promtool check rules "$expressions"
rm -f "$expressions"
