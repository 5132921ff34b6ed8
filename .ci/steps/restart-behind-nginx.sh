#!/usr/bin/env bash
# The recipe of docs/operations.md as it stands there: two servers behind nginx, restarted one after the other under load.
set -eu
cd "$(dirname "$0")/../.."
nginx=$(PATH="$PATH:/usr/sbin" command -v nginx) || { echo 'skipped: no nginx here'; exit 0; }
[ -e dist/main.js ] || npx nest build
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT

read -r engine front a a_admin b b_admin < <(node -e '
  const net = require("node:net");
  const servers = Array.from({ length: 6 }, () => net.createServer().listen(0, "127.0.0.1"));
  setImmediate(() => {
    console.log(servers.map((server) => server.address().port).join(" "));
    servers.forEach((server) => server.close());
  });')

ready() {
  for _ in $(seq 200); do
    if curl -sf "http://127.0.0.1:$1$2" >/dev/null; then return; fi
    sleep 0.1
  done
  echo "port $1 did not become ready"
  exit 1
}

serve() {
  LLMGW_SHUTDOWN_DELAY=2s node dist/main.js server --endpoint "e1=http://127.0.0.1:$engine=m1" \
    --listen "127.0.0.1:$1" --admin-listen "127.0.0.1:$2" 2>>"$work/server-$1.log" &
  pid=$!
  pids+=("$pid")
  ready "$2" /readyz
}

node dist/engines/sim/main.js --port "$engine" --model m1 --ttft-ms 5 --tpot-ms 5 >/dev/null 2>&1 &
pids+=("$!")
ready "$engine" /health
serve "$a" "$a_admin" && first=$pid
serve "$b" "$b_admin" && second=$pid

{
  echo "daemon off; pid $work/nginx.pid; error_log $work/nginx.log; events { worker_connections 1024; }"
  echo "http { access_log off;"
  for kind in client_body proxy fastcgi uwsgi scgi; do echo "${kind}_temp_path $work/$kind;"; done
  sed -n '/^```nginx$/,/^```$/p' docs/operations.md | sed '1d;$d' |
    sed "s/10.0.0.1:8080/127.0.0.1:$a/; s/10.0.0.2:8080/127.0.0.1:$b/; s/listen 80;/listen 127.0.0.1:$front;/"
  echo '}'
} >"$work/nginx.conf"
"$nginx" -c "$work/nginx.conf" -p "$work" -e "$work/nginx.log" &
pids+=("$!")
ready "$front" /health

node dist/main.js bench --url "http://127.0.0.1:$front" --model m1 --concurrency 6 --duration 5m --max-tokens 30 >"$work/bench" &
bench=$!
pids+=("$bench")
sleep 3
for _ in 1 2; do
  kill -TERM "$first" && wait "$first"
  serve "$a" "$a_admin" && first=$pid
  kill -TERM "$second" && wait "$second"
  serve "$b" "$b_admin" && second=$pid
done
kill -INT "$bench"
wait "$bench" || [ $? -eq 130 ]
cat "$work/bench"
# Everything that was asked was answered whole; what ran at the interrupt is no failure.
if sed -n '/^result/,$p' "$work/bench" | sed 1d | grep -v -E '^(ok|interrupted) '; then exit 1; fi
grep -q '^ok ' "$work/bench"
