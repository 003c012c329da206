# about: nginx with two workers under wrk, bodies checked, gzip, a reload, a graceful end
# programs: nginx
# needs: nginx wrk curl

mkdir -p html logs temp
seq 1 200000 >html/large.txt
echo 'a small page' >html/small.txt
user=
[ "$(id -u)" -eq 0 ] && user="user root;"
cat >nginx.conf <<END
$user
worker_processes 2;
daemon off;
pid $PWD/nginx.pid;
error_log $PWD/logs/error.log notice;
events { worker_connections 256; }
http {
  access_log $PWD/logs/access.log;
  client_body_temp_path $PWD/temp/body;
  proxy_temp_path $PWD/temp/proxy;
  fastcgi_temp_path $PWD/temp/fastcgi;
  uwsgi_temp_path $PWD/temp/uwsgi;
  scgi_temp_path $PWD/temp/scgi;
  gzip_types text/plain;
  server {
    listen 127.0.0.1:$PORT;
    root $PWD/html;
    location /packed/ { alias $PWD/html/; gzip on; }
    location /through/ { proxy_pass http://127.0.0.1:$PORT/; }
  }
}
END
$RUN nginx -p "$PWD" -c nginx.conf -e logs/error.log 2>server.err &
server=$!
wait_for port_is_open "$PORT"
wait_for bash -c "[ \$(cat /proc/$server/task/$server/children | wc -w) -eq 2 ]"
check_family "$server"

url=http://127.0.0.1:$PORT
for path in large.txt small.txt through/large.txt; do curl -sS "$url/$path" | digest; done
curl -sS --compressed "$url/packed/large.txt" | digest
curl -sS -o /dev/null -w '%{http_code}\n' "$url/absent"
load() {
  wrk -t 2 -c 40 -d 2s --timeout "$HANG_S"s "$url/$1" >"wrk-$2.txt" 2>&1 || die "wrk: $(cat "wrk-$2.txt")"
  grep -E 'Non-2xx|Socket errors' "wrk-$2.txt"
  [ "$(sed -n 's/^ *\([0-9]*\) requests in.*/\1/p' "wrk-$2.txt")" -gt 100 ] && echo "served $1"
}
load small.txt 1
load packed/large.txt 2
load through/small.txt 3
kill -HUP "$server"
wait_for grep -q 'worker process [0-9]* exited with code 0' logs/error.log
curl -sS "$url/large.txt" | digest
check_family "$server"
stop "$server" QUIT
grep -cE '\[(alert|crit|emerg)\]' logs/error.log
cat server.err
exit 0
