//! Patterns of function names: `*` for any run of characters, `?` for one. Nothing else is special,
//! because C++ names are full of brackets.

/// Whether all of `text` matches.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    retry = Some((after_star, from + 1));
                    p = after_star;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_match() {
        assert!(matches("curl_dbg_*", "curl_dbg_malloc"));
        assert!(matches("*::push_?ack", "Queue::push_back"));
        assert!(matches("operator new[]", "operator new[]"));
        assert!(matches("a*b*c", "aXbYbZc"));
        assert!(matches("*", ""));
        assert!(!matches("malloc", "xmalloc"));
        assert!(!matches("a*b", "ac"));
        assert!(!matches("", "x"));
    }
}
