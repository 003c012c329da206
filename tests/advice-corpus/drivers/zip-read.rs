// An archive of small files, listed.
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

fn main() {
    let files: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for number in 0..files {
        writer.start_file(format!("folder/{number}.txt"), options).unwrap();
        writer.write_all(b"text").unwrap();
    }
    let packed = writer.finish().unwrap();
    let mut count = 0;
    for _ in 0..20 {
        count += zip::ZipArchive::new(packed.clone()).unwrap().len();
    }
    println!("{count} files");
}
