// churn.js SCALE: a service's day in small: JSON read and written, texts joined, buffers compressed.
//
// JavaScript's objects lie in V8's own heap; malloc serves what is around it: parser and compiler
// zones, buffers, zlib's state, handles, strings outside of the heap.
'use strict';
const zlib = require('node:zlib');

const scale = Number(process.argv[2]);
const records = Math.max(20, Math.round(4000 * scale));
const turns = Math.max(1, Math.round(12 * scale));

function makeRecords() {
  return Array.from({ length: records }, (_, i) => ({
    id: i,
    name: `user-${i % 977}`,
    tags: [`t${i % 7}`, `t${i % 13}`],
    address: { street: `street ${i * 7919 % 1009}`, town: `town ${i % 101}` },
    scores: Array.from({ length: i % 12 }, (_, n) => n * i * 0.5),
  }));
}

let data = makeRecords();
let bytes = 0;
for (let turn = 0; turn < turns; turn++) {
  const text = JSON.stringify(data);
  data = JSON.parse(text);
  // Each record as a message of its own: compressed, sent, unpacked.
  for (let i = turn % 4; i < data.length; i += 4) {
    const packed = zlib.deflateRawSync(Buffer.from(JSON.stringify(data[i])), { level: 1 });
    const copy = Buffer.alloc(packed.length + 16 + (i % 4096));
    packed.copy(copy, 16);
    bytes += JSON.parse(zlib.inflateRawSync(copy.subarray(16, 16 + packed.length)).toString()).id;
  }
  bytes += zlib.gunzipSync(zlib.gzipSync(text, { level: 1 })).length;
}
const wanted = JSON.stringify(makeRecords());
if (JSON.stringify(data) !== wanted || bytes < turns * wanted.length) {
  throw new Error('the records have changed');
}
