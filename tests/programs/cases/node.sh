# about: node: strings, buffers, compression, worker threads, child processes
# programs: node
# needs: node

cat >script.js <<'END'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');
const { execFileSync } = require('child_process');

function work(seed) {
  let state = seed + 1;
  const next = () => (state = (state * 1103515245 + 12345) % 2147483648);
  const map = new Map();
  for (let i = 0; i < 100000; i++) {
    const word = (next() % 5000).toString(36).repeat(1 + next() % 5);
    map.set(word, (map.get(word) || 0) + 1);
  }
  const text = JSON.stringify([...map].sort());
  const packed = zlib.gzipSync(text, { level: 6 });
  const buffers = [];
  for (let i = 0; i < 2000; i++) buffers.push(Buffer.alloc(next() % 20000, i % 256));
  const hash = crypto.createHash('sha256').update(text).update(zlib.gunzipSync(packed));
  for (const buffer of buffers) hash.update(buffer);
  return hash.digest('hex');
}

if (!isMainThread) {
  parentPort.postMessage(work(workerData));
} else {
  Promise.all([1, 2, 3, 4].map(seed => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: seed });
    worker.on('message', resolve);
    worker.on('error', reject);
  }))).then(results => {
    results.forEach(result => console.log(result));
    console.log(work(5));
    console.log(execFileSync(process.execPath, ['-p', '6 * 7']).toString().trim());
    process.exitCode = 5;
  });
}
END
$RUN node script.js
echo "exit code $?"
