//! Names in source form: demangled symbols of Rust and C++, without parameters and hashes, because the
//! line number tells overloads apart.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// A hostile symbol of a hundred bytes can expand to gigabytes.
const MAX_NAME_BYTES: usize = 2048;

/// The demangled form of `symbol`, or `symbol` itself.
pub fn demangle(symbol: &str) -> String {
    // The loader's version suffix (malloc@@GLIBC_2.2.5) is not part of the name.
    let symbol = symbol.split('@').next().unwrap_or(symbol);
    // glibc's internal name of an exported function.
    let symbol = symbol.strip_prefix("__GI_").unwrap_or(symbol);
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return bounded(|out| write!(out, "{name:#}")).unwrap_or_else(|| symbol.to_owned());
    }
    if !symbol.starts_with("_Z") {
        return symbol.to_owned();
    }
    let (base, clone) = split_clone_suffix(symbol);
    let options = DemangleOptions::new().no_params().no_return_type();
    Symbol::new(base)
        .ok()
        .and_then(|parsed| bounded(|out| parsed.structured_demangle(out, &options)))
        .map_or_else(
            || symbol.to_owned(),
            |name| without_empty_packs(name) + clone,
        )
}

/// An empty parameter pack is demangled to an empty argument: `make_unique<W, >`.
fn without_empty_packs(mut name: String) -> String {
    while name.contains(", >") {
        name = name.replace(", >", ">");
    }
    name
}

/// gcc's suffixes of function clones: `.cold`, `.part.0`, `.isra.0`, `.constprop.0`. A part that gcc
/// moved elsewhere counts as its function.
fn split_clone_suffix(symbol: &str) -> (&str, &str) {
    match symbol.find('.') {
        Some(dot) => (&symbol[..dot], ""),
        None => (symbol, ""),
    }
}

/// Writes up to `MAX_NAME_BYTES`; a longer name is cut and ends in "…".
fn bounded(write: impl FnOnce(&mut Bounded) -> fmt::Result) -> Option<String> {
    let mut out = Bounded {
        text: String::new(),
        cut: false,
    };
    let result = write(&mut out);
    match (result, out.cut) {
        (_, true) => Some(out.text + "…"),
        (Ok(()), false) => Some(out.text),
        (Err(_), false) => None,
    }
}

struct Bounded {
    text: String,
    cut: bool,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > MAX_NAME_BYTES {
            self.cut = true;
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn c_names_stay() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("malloc@@GLIBC_2.2.5"), "malloc");
        assert_eq!(demangle("__GI_setlocale"), "setlocale");
    }

    #[test]
    fn cpp_names_lose_parameters_and_return_types() {
        assert_eq!(demangle("_ZN6Parser5parseERKSs"), "Parser::parse");
        assert_eq!(demangle("_Znwm"), "operator new");
        assert_eq!(demangle("_ZN6Parser5parseEv.part.0"), "Parser::parse");
        assert_eq!(
            demangle("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back"
        );
    }

    #[test]
    fn an_empty_parameter_pack_leaves_no_comma() {
        assert_eq!(
            demangle("_ZSt11make_uniqueI1WJEENSt8__detail9_MakeUniqIT_E15__single_objectEDpOT0_"),
            "std::make_unique<W>"
        );
    }

    #[test]
    fn rust_names_lose_their_hash() {
        assert_eq!(
            demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"),
            "core::fmt::Formatter::pad"
        );
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
    }

    #[test]
    fn what_is_no_mangled_name_stays() {
        assert_eq!(demangle("_Zinvalid"), "_Zinvalid");
    }

    #[test]
    fn a_symbol_that_unfolds_without_end_is_cut() {
        // Each argument names the pair before it twice.
        let mut symbol = String::from("_Z1fI");
        symbol.push_str("1aIiiE");
        for n in 0..30 {
            let seq = if n == 0 {
                "S_".to_owned()
            } else {
                format!("S{}_", to_base36(n - 1))
            };
            symbol.push_str(&format!("1aI{seq}{seq}E"));
        }
        symbol.push_str("Evv");
        assert!(demangle(&symbol).len() <= super::MAX_NAME_BYTES + symbol.len());
    }

    fn to_base36(mut n: usize) -> String {
        let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut out = vec![];
        loop {
            out.insert(0, digits[n % 36] as char);
            n /= 36;
            if n == 0 {
                return out.into_iter().collect();
            }
        }
    }
}
