//! Template names as users write them: without inline namespaces and the default arguments of the
//! library, and `std::string` for what is a `basic_string` of `char`.
//!
//! Time and memory: linear in the name. A name that was cut, or whose brackets do not match, keeps what
//! is not understood.

/// Templates that are default arguments where they come last.
const DEFAULTS: &[&str] = &[
    "std::allocator<",
    "std::char_traits<",
    "std::default_delete<",
    "std::equal_to<",
    "std::hash<",
    "std::less<",
];
const RUST_DEFAULT: &str = "alloc::alloc::Global";

/// After `operator`, these are no brackets; longer ones first.
const OPERATORS: &[&str] = &[
    "()", "<=>", "<<=", ">>=", "->*", "<<", ">>", "->", "<=", ">=", "<", ">", ",",
];

/// A template whose arguments are being read.
struct Open {
    /// Of `<`, in the result.
    at: usize,
    commas: Vec<usize>,
}

/// The name in its short form.
pub fn shorten(name: &str) -> String {
    let plain = name
        .replace("std::__cxx11::", "std::")
        .replace("std::__1::", "std::")
        .replace("[abi:cxx11]", "");
    if !plain.contains('<') {
        return plain;
    }
    let mut out = String::with_capacity(plain.len());
    let mut open: Vec<Open> = Vec::new();
    // Within parentheses there are parameters and expressions.
    let mut depth = 0usize;
    let mut rest = &*plain;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        let sign = operator(&out, rest);
        match c {
            _ if sign > 0 => taken = sign,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '<' if depth == 0 => open.push(Open {
                at: out.len(),
                commas: Vec::new(),
            }),
            ',' if depth == 0 => {
                if let Some(inner) = open.last_mut() {
                    inner.commas.push(out.len());
                }
            }
            '>' if depth == 0 => {
                if let Some(closed) = open.pop() {
                    close(&mut out, &closed);
                    rest = &rest[taken..];
                    continue;
                }
            }
            _ => {}
        }
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

/// The length of the operator, or of the arrow, that a text begins with.
fn operator(before: &str, rest: &str) -> usize {
    let found = match before.ends_with("operator") {
        true => OPERATORS.iter().find(|sign| rest.starts_with(**sign)),
        false => OPERATORS
            .iter()
            .find(|sign| **sign == "->" && rest.starts_with("->")),
    };
    found.map_or(0, |sign| sign.len())
}

/// Ends the template that is open at the end of `out`.
fn close(out: &mut String, open: &Open) {
    for comma in open.commas.iter().rev() {
        let argument = out[comma + 1..].trim();
        if !is_default(argument) {
            break;
        }
        out.truncate(*comma);
    }
    out.truncate(out.trim_end().len());
    match alias(&out[..open.at], &out[open.at + 1..]) {
        Some((end, known)) => {
            out.truncate(end);
            out.push_str(&known);
        }
        None => out.push('>'),
    }
}

/// `std::less<void>` and its like are not the default.
fn is_default(argument: &str) -> bool {
    let of = |class: &&&str| {
        let argument = argument.strip_prefix(**class)?.strip_suffix('>')?;
        (argument != "void").then_some(())
    };
    argument == RUST_DEFAULT || DEFAULTS.iter().any(|class| of(&class).is_some())
}

/// `std::string` for `std::basic_string` of `char`, and so on: where it begins behind `std::`, and its name.
fn alias(template: &str, arguments: &str) -> Option<(usize, String)> {
    const BASIC: &str = "std::basic_";
    let wide = match arguments {
        "char" => "",
        "wchar_t" => "w",
        "char8_t" => "u8",
        "char16_t" => "u16",
        "char32_t" => "u32",
        _ => return None,
    };
    let at = template.rfind(BASIC)?;
    let class = &template[at + BASIC.len()..];
    let is_name = !class.is_empty() && class.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then(|| (at + "std::".len(), format!("{wide}{class}")))
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn default_arguments_and_inline_namespaces_are_left_out() {
        for (full, short) in [
            (
                "std::vector<int, std::allocator<int> >::push_back",
                "std::vector<int>::push_back",
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create",
                "std::string::_M_create",
            ),
            (
                "std::map<std::__cxx11::basic_string<wchar_t, std::char_traits<wchar_t>, std::allocator<wchar_t> >, \
                 std::vector<int, std::allocator<int> >, std::less<std::__cxx11::basic_string<wchar_t, \
                 std::char_traits<wchar_t>, std::allocator<wchar_t> > >, std::allocator<int> >::at",
                "std::map<std::wstring, std::vector<int>>::at",
            ),
            (
                "std::__1::basic_ostringstream<char, std::__1::char_traits<char>, std::__1::allocator<char>>::str",
                "std::ostringstream::str",
            ),
            (
                "std::unique_ptr<A, std::default_delete<A> >::reset",
                "std::unique_ptr<A>::reset",
            ),
            (
                "std::unordered_map<int, A, std::hash<int>, std::equal_to<int>, std::allocator<A> >::find",
                "std::unordered_map<int, A>::find",
            ),
            (
                "alloc::vec::Vec<u8, alloc::alloc::Global>::push",
                "alloc::vec::Vec<u8>::push",
            ),
            ("name[abi:cxx11]", "name"),
        ] {
            assert_eq!(shorten(full), short);
        }
    }

    #[test]
    fn what_differs_from_the_default_stays() {
        for name in [
            "std::vector<int, Pool<int>>::push_back",
            "std::set<int, std::greater<int>>::insert",
            "std::set<int, std::less<void>>::insert",
            "std::stack<int, std::deque<int>>::push",
            "std::basic_string<char, Traits>::size",
            "f<std::allocator<int>>",
            "main",
        ] {
            assert_eq!(shorten(name), name);
        }
    }

    #[test]
    fn operators_and_arrows_are_no_brackets() {
        for (full, short) in [
            (
                "operator< <std::vector<int, std::allocator<int> > >",
                "operator< <std::vector<int>>",
            ),
            ("A<B<int> >::operator->", "A<B<int>>::operator->"),
            ("std::operator<< <char>", "std::operator<< <char>"),
            ("A<int>::operator()", "A<int>::operator()"),
            ("f<fn() -> u8>::g<B<int> >", "f<fn() -> u8>::g<B<int>>"),
            ("f<(Policy)2, std::allocator<int> >", "f<(Policy)2>"),
            ("f<(1 > 0), std::allocator<int> >", "f<(1 > 0)>"),
        ] {
            assert_eq!(shorten(full), short);
        }
    }

    #[test]
    fn any_text_is_taken() {
        for name in [
            "a<b, std::allocator<c",
            "a>>>",
            "<<<",
            ">",
            "a<,>",
            "std::basic_<char>",
            "ä<ö, >…",
        ] {
            let short = shorten(name);
            assert!(short.len() <= name.len(), "{short}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        let parts = [
            "<",
            ">",
            ", ",
            "std::allocator<",
            "operator",
            "->",
            "(",
            ")",
            "std::basic_string",
            "char",
            "ä",
        ];
        for _ in 0..2000 {
            let name: String = (0..random.usize(..30))
                .map(|_| parts[random.usize(..parts.len())])
                .collect();
            assert!(shorten(&name).len() <= name.len(), "{name}");
        }
    }
}
