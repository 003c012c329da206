// The abbreviations of programs' debug information, read as a debugger reads them.
use gimli::{DebugAbbrev, DebugAbbrevOffset, LittleEndian};

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(200, |word| word.parse().unwrap());
    let mut section = Vec::new();
    for code in 1..=60u8 {
        section.extend([code, 0x2e, code % 2]);
        for attribute in 0..1 + code % 7 {
            section.extend([0x31 + attribute, 0x0b]);
        }
        section.extend([0, 0]);
    }
    section.push(0);
    let mut count = 0;
    for _ in 0..rounds {
        let abbreviations = DebugAbbrev::new(&section, LittleEndian).abbreviations(DebugAbbrevOffset(0)).unwrap();
        count += (1..=60).map(|code| abbreviations.get(code).unwrap().attributes().len()).sum::<usize>();
    }
    println!("{count} attributes");
}
