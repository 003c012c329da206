# about: memcached in four threads, values of all sizes set and read back by eight clients
# programs: memcached
# needs: memcached python3

user=
[ "$(id -u)" -eq 0 ] && user='-u nobody'
$RUN memcached -l 127.0.0.1 -p "$PORT" -U 0 -t 4 -m 64 $user >server.log 2>&1 &
server=$!
wait_for port_is_open "$PORT"
check_mapped "$server"
cat >client.py <<'END'
import socket, sys, threading

wrong = []
def client(number):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        stream = connection.makefile("rwb")
        for step in range(1500):
            key = f"k{number}-{step % 97}".encode()
            value = bytes([step % 256]) * (step * step % 50_000)
            stream.write(b"set %s 0 0 %d\r\n%s\r\nget %s\r\n" % (key, len(value), value, key))
            stream.flush()
            answer = stream.readline() + stream.readline()
            got = stream.read(len(value) + 2)[:-2]
            if b"STORED" not in answer or got != value or stream.readline() != b"END\r\n":
                wrong.append((number, step))
                return
threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("wrong answers:", len(wrong))
END
python3 client.py "$PORT"
stop "$server" TERM
