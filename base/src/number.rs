//! Formats numbers for reports.

/// With a comma at every third digit.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A whole number, rounded, with a comma at every third digit.
pub fn rounded(value: f64) -> String {
    let whole = grouped(value.abs().round_ties_even() as u64);
    let sign = if value < 0.0 && whole != "0" { "-" } else { "" };
    format!("{sign}{whole}")
}

/// With up to this many digits behind the point, without trailing zeros.
pub fn shortest(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if digits == 0 {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes with a binary unit and about three digits.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && scaled < 100.0 && scaled.fract() != 0.0);
    format!("{scaled:.digits$} {}", UNITS[unit])
}

/// A share in percent; 0 if the whole is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    percent_of(part as f64, whole as f64)
}

/// The same of estimates.
pub fn percent_of(part: f64, whole: f64) -> f64 {
    if whole == 0.0 {
        0.0
    } else {
        part * 100.0 / whole
    }
}

/// A duration with about three digits.
pub fn duration(ns: u64) -> String {
    match ns {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// "1 call", "2 calls", "2 copies".
pub fn counted(count: u64, noun: &str) -> String {
    let (stem, ending) = match (count, noun.strip_suffix("py")) {
        (1, _) => (noun, ""),
        (_, Some(stem)) => (stem, "pies"),
        (_, None) => (noun, "s"),
    };
    format!("{} {stem}{ending}", grouped(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_have_their_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
    }

    #[test]
    fn what_is_not_whole_is_rounded() {
        let texts = [-1234.0, -0.4, 1234.4, 2.5].map(rounded);
        assert_eq!(texts, ["-1,234", "0", "1,234", "2"]);
        assert_eq!(shortest(1500.0, 0), "1500");
        assert_eq!(shortest(1.50, 3), "1.5");
    }

    #[test]
    fn a_duration_has_its_unit() {
        let texts = [0, 22, 1_500, 2_500_000, 3_000_000_000].map(duration);
        assert_eq!(texts, ["0 s", "22 ns", "1.5 µs", "2.5 ms", "3.00 s"]);
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        assert_eq!(percent(0, 0), 0.0);
        assert_eq!(percent(1, 4), 25.0);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1, "call"), "1 call");
        assert_eq!(counted(2_000, "call"), "2,000 calls");
    }
}
