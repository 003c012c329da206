//! Seeded mutations of a corpus: what the fuzzer does for hours, for a second, the same every time.

use std::path::Path;

/// Calls `read` with each file of `corpus/KIND`, and with `count` mutants of them.
pub fn each_mutant(kind: &str, count: u32, mut read: impl FnMut(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(kind);
    let entries = std::fs::read_dir(&folder).expect("the corpus");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let files: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| std::fs::read(path).expect("a file"))
        .collect();
    assert!(files.len() >= 5, "{} holds no corpus", folder.display());
    files.iter().for_each(|file| read(file));
    let mut random = Random(0x5eed);
    for _ in 0..count {
        let mut mutant = files[random.below(files.len())].clone();
        for _ in 0..=random.below(6) {
            mutate(&mut mutant, &files, &mut random);
        }
        read(&mutant);
    }
}

fn mutate(bytes: &mut Vec<u8>, files: &[Vec<u8>], random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(0);
    }
    let at = random.below(bytes.len());
    match random.below(7) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes.truncate(at),
        3 => _ = bytes.drain(at..(at + random.below(64)).min(bytes.len())),
        4 => {
            let other = &files[random.below(files.len())];
            let from = random.below(other.len());
            let part = &other[from..(from + random.below(512)).min(other.len())];
            bytes.splice(at..at, part.iter().copied());
        }
        5 => {
            let number = [0, 1, u64::MAX, 1 << 63, 100 << 30][random.below(5)].to_le_bytes();
            let end = (at + 1 + random.below(8)).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        _ => {
            let end = (at + random.below(256)).min(bytes.len());
            let part = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, part);
        }
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
