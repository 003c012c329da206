// Log lines begin with the time of day.
use chrono::{TimeZone, Utc};

fn main() {
    let lines: i64 = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let mut bytes = 0;
    for line in 0..lines {
        let at = Utc.timestamp_opt(1_600_000_000 + line * 61, 0).unwrap();
        bytes += at.to_rfc3339().len();
    }
    println!("{bytes} bytes");
}
