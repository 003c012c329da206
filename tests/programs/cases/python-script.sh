# about: a Python script with threads, fork and large data
# programs: python3(\.\d+)?
# needs: python3

cat >script.py <<'END'
import decimal, hashlib, json, os, random, re, threading, zlib

random.seed(1)
words = ["".join(random.choices("abcdefghij", k=random.randint(1, 40))) for _ in range(60_000)]
index = {}
for number, word in enumerate(words):
    index.setdefault(word[:3], []).append((number, word))
text = json.dumps(index, sort_keys=True)
print("json", len(text), hashlib.sha256(text.encode()).hexdigest())
print("zlib", zlib.decompress(zlib.compress(text.encode(), 6)) == text.encode())
print("words", len(re.findall(r'"([a-j]+)"', text)))
decimal.getcontext().prec = 3000
print("digits", hashlib.sha256(str(decimal.Decimal(2).sqrt()).encode()).hexdigest())

sums = [0] * 8
def work(slot):
    kept = []
    for step in range(20_000):
        kept.append(bytes([slot]) * (step % 700))
        if len(kept) > 300:
            sums[slot] += len(kept.pop(step % 300))
threads = [threading.Thread(target=work, args=(slot,)) for slot in range(8)]
for thread in threads:
    thread.start()
children = []
for number in range(20):
    pid = os.fork()
    if pid == 0:
        os._exit(len([bytearray(size) for size in range(number * 100)]) // 100)
    children.append(pid)
print("children", [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
for thread in threads:
    thread.join()
print("threads", sums)
grown = bytearray()
for step in range(2_000):
    grown += bytes([step % 251]) * 10_007
print("grown", len(grown), zlib.crc32(grown))
END
$RUN python3 script.py
