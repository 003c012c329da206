//! A limit on one figure, in a budget's forms: `149` or `"= 149"` (exactly), `"<= 149"` (up to),
//! `"149 +5%"` (up to that much more).

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Less is over the budget, too, so that the budget follows.
    Exact,
    AtMost,
    /// Up to this much more, in hundredths of a percent.
    Above(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub value: u64,
    pub rule: Rule,
}

const FORMS: &str = "write 149 or \"= 149\" (exactly), \"<= 149\" (up to 149) or \"149 +5%\"";
const MOST_PERCENT: f64 = 1e6;

impl Limit {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let (rule, rest) = if let Some(rest) = text.strip_prefix("<=") {
            (Some(Rule::AtMost), rest)
        } else if let Some(rest) = text.strip_prefix('=') {
            (Some(Rule::Exact), rest)
        } else {
            (None, text)
        };
        let (number, above) = match rest.split_once('+') {
            Some((number, percent)) => (number, Some(parse_percent(percent).ok_or(FORMS)?)),
            None => (rest, None),
        };
        let digits: String = number.trim().chars().filter(|c| *c != '_').collect();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FORMS);
        }
        let value = digits.parse().map_err(|_| FORMS)?;
        let rule = match (rule, above) {
            (None, Some(above)) => above,
            (Some(_), Some(_)) => return Err(FORMS),
            (rule, None) => rule.unwrap_or(Rule::Exact),
        };
        Ok(Self { value, rule })
    }

    /// The largest value within the limit.
    pub fn highest(&self) -> u64 {
        match self.rule {
            Rule::Exact | Rule::AtMost => self.value,
            Rule::Above(hundredths) => {
                let more = u128::from(self.value) * u128::from(hundredths) / 10_000;
                self.value
                    .saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
            }
        }
    }

    pub fn allows(&self, found: u64) -> bool {
        match self.rule {
            Rule::Exact => found == self.value,
            _ => found <= self.highest(),
        }
    }
}

fn parse_percent(text: &str) -> Option<Rule> {
    let number = text.trim().strip_suffix('%')?.trim();
    let plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent: f64 = number.parse().ok().filter(|_| plain)?;
    (percent <= MOST_PERCENT).then(|| Rule::Above((percent * 100.0).round() as u32))
}

/// In the budget's form.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Rule::Exact => write!(f, "{}", self.value),
            Rule::AtMost => write!(f, "<= {}", self.value),
            Rule::Above(hundredths) => {
                write!(f, "{} +{}%", self.value, f64::from(hundredths) / 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_are_understood_and_written_back() {
        for (text, value, rule, written) in [
            ("149", 149, Rule::Exact, "149"),
            (" = 1_490 ", 1490, Rule::Exact, "1490"),
            ("<=0", 0, Rule::AtMost, "<= 0"),
            ("149 +5%", 149, Rule::Above(500), "149 +5%"),
            ("100+ 0.25 %", 100, Rule::Above(25), "100 +0.25%"),
        ] {
            let limit = Limit::parse(text).expect(text);
            assert_eq!(limit, Limit { value, rule }, "{text}");
            assert_eq!(limit.to_string(), written);
            assert_eq!(Limit::parse(written), Ok(limit));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let too_large = "99999999999999999999999";
        for text in [
            "",
            "=",
            "-1",
            "1.5",
            "149 + %",
            "149 +-5%",
            "149 +5",
            "<= 1 +5%",
            "1e3",
            "+5%",
            "149 +inf%",
            "149 +9e99%",
            "149 +99999999999%",
            "= = 1",
            too_large,
        ] {
            assert!(Limit::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_within_a_limit() {
        let within = |text: &str, found| Limit::parse(text).expect(text).allows(found);
        assert!(within("149", 149) && !within("149", 150) && !within("149", 148));
        assert!(within("<= 149", 0) && within("<= 149", 149) && !within("<= 149", 150));
        assert!(within("149 +5%", 156) && !within("149 +5%", 157));
        let huge = Limit::parse("18446744073709551615 +100%").expect("a limit");
        assert_eq!(huge.highest(), u64::MAX);
    }
}
