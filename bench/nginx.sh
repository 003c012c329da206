#!/bin/sh
# nginx.sh REQUESTS: an nginx worker on the loopback interface, loaded by wrk over 32 connections.
#
# Each request takes pools for connection and request, and zlib's state for a compressed text: blocks
# of 256 bytes to 256 KiB that live for one request. wrk runs for a fixed time, so the time printed
# is that of REQUESTS requests at the rate seen.
requests=${1:?usage: nginx.sh REQUESTS}
. "$(dirname "$0")/server.sh"

plain awk 'BEGIN { for (i = 0; i < 120; i++) printf "line %d of a page that compresses well\n", i * 7919 % 1009 }' \
  >"$directory/page.txt"
port=$(free_port)
cat >"$directory/nginx.conf" <<END
daemon off;
master_process off;
worker_processes 1;
pid $directory/pid;
error_log $directory/log;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path $directory/body;
  proxy_temp_path $directory/proxy;
  fastcgi_temp_path $directory/fastcgi;
  uwsgi_temp_path $directory/uwsgi;
  scgi_temp_path $directory/scgi;
  types { text/plain txt; }
  gzip on;
  gzip_comp_level 1;
  gzip_types text/plain;
  server {
    listen 127.0.0.1:$port;
    root $directory;
  }
}
END
nginx -p "$directory" -e "$directory/log" -c "$directory/nginx.conf" >"$directory/out" 2>&1 &
server=$!
started=$server
await nginx "$directory/log" curl -sf -o /dev/null "http://127.0.0.1:$port/page.txt"

# wrk takes whole seconds.
load() {
  plain wrk -t 1 -c 32 -d "$1s" -H 'Accept-Encoding: gzip' "http://127.0.0.1:$port/page.txt"
}
seconds=2
[ "$requests" -ge 20000 ] || seconds=1
load "$seconds" >"$directory/load"
counted=$(plain awk '/requests in/ { print $1, $4 }' "$directory/load")
! plain grep -q 'Non-2xx\|Socket errors' "$directory/load" || fail "$(plain cat "$directory/load")"
case $counted in
  [1-9]*s,) ;;
  *) fail "wrk's report is not understood: $counted" ;;
esac
served=${counted% *}
seconds=${counted#* }
report "$server" "${seconds%s,}" "$(plain awk -v n="$requests" -v d="$served" 'BEGIN { print n / d }')"
