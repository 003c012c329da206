#!/bin/sh
# curl.sh MIB: curl downloads a large file and many small ones from the loopback interface.
#
# Behaves like the transfers by which curl's own allocations were counted: one large file, which
# needs next to no allocation, and requests in a row that each build and drop their URL, headers and
# state. curl is measured; nginx serves without the allocator.
mib=${1:?usage: curl.sh MIB}
. "$(dirname "$0")/server.sh"
[ "$mib" -ge 1 ] || mib=1
measure=$(dirname "$0")/../larder-measure

plain truncate -s "${mib}M" "$directory/large"
echo small >"$directory/small"
port=$(free_port)
cat >"$directory/nginx.conf" <<END
daemon off;
master_process off;
pid $directory/pid;
error_log $directory/log;
events { worker_connections 256; }
http {
  access_log off;
  sendfile on;
  keepalive_requests 1000000;
  client_body_temp_path $directory/body;
  proxy_temp_path $directory/proxy;
  fastcgi_temp_path $directory/fastcgi;
  uwsgi_temp_path $directory/uwsgi;
  scgi_temp_path $directory/scgi;
  server {
    listen 127.0.0.1:$port;
    root $directory;
  }
}
END
(without_allocator && exec nginx -p "$directory" -e "$directory/log" -c "$directory/nginx.conf") \
  >"$directory/out" 2>&1 &
started=$!
url=http://127.0.0.1:$port
await nginx "$directory/log" curl -sf -o /dev/null "$url/small"

env -u LD_PRELOAD "$measure" "${LD_PRELOAD:--}" "$directory/measured" 300 \
  curl -sSf -o /dev/null "$url/large" -o /dev/null "$url/small?[1-$mib]"
plain grep -q '"exit_code": 0' "$directory/measured" || fail "curl: $(plain cat "$directory/measured")"
plain sed 's/"wall_seconds"/"seconds"/' "$directory/measured"
