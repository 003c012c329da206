//! Which frames are plumbing: code between the program's own line and the allocator, which is not
//! charged. `docs/reference/report.md` has the rules.

use larder_trace::{AllocCall, FreeCall};

use crate::symbols::SourceFrame;

/// The role of a module, by its file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleRole {
    /// The recorder and the allocator below it.
    Larder,
    /// The C and C++ run-time libraries.
    System,
    Program,
}

const LARDER_MODULES: &[&str] = &["liblarder_", "liblarder."];

const SYSTEM_MODULES: &[&str] = &[
    "libc.so",
    "libc-2.",
    "libm.so",
    "libpthread",
    "libdl.so",
    "librt.so",
    "libresolv",
    "libnss_",
    "ld-linux",
    "ld-2.",
    "ld-musl",
    "libgcc_s",
    "libstdc++",
    "libc++.so",
    "libc++abi",
    "linux-vdso",
    "[vdso]",
];

/// Well-known wrappers of malloc: their callers are charged.
const KNOWN_WRAPPERS: &[&str] = &[
    // GNU programs.
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xzalloc",
    "xcharalloc",
    "xmemdup",
    "xstrdup",
    "xstrndup",
    "xnmalloc",
    "xnrealloc",
    "xreallocarray",
    "xpalloc",
    "x2realloc",
    "x2nrealloc",
    "ximalloc",
    "xirealloc",
    // GLib.
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc",
    "g_realloc_n",
    "g_try_malloc",
    "g_try_malloc0",
    "g_try_malloc_n",
    "g_try_realloc",
    "g_try_realloc_n",
    "g_strdup",
    "g_strndup",
    "g_memdup",
    "g_memdup2",
    "g_slice_alloc",
    "g_slice_alloc0",
    // OpenSSL.
    "CRYPTO_malloc",
    "CRYPTO_zalloc",
    "CRYPTO_realloc",
    "CRYPTO_clear_realloc",
    "CRYPTO_strdup",
    "CRYPTO_strndup",
    "CRYPTO_memdup",
    // curl.
    "curl_dbg_malloc",
    "curl_dbg_calloc",
    "curl_dbg_realloc",
    "curl_dbg_strdup",
    "curl_dbg_wcsdup",
];

/// Further names of the malloc family.
const FAMILY_INSIDE: &[&str] = &[
    "cfree",
    "__strdup",
    "__strndup",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_free",
    "__libc_reallocarray",
    // Rust's allocator shims.
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_realloc",
    "__rg_alloc",
    "__rg_realloc",
    "__rust_dealloc",
    "__rdl_dealloc",
];

impl ModuleRole {
    pub fn of(file_name: &str) -> Self {
        let begins = |names: &[&str]| names.iter().any(|name| file_name.starts_with(name));
        if begins(LARDER_MODULES) {
            ModuleRole::Larder
        } else if begins(SYSTEM_MODULES) {
            ModuleRole::System
        } else {
            ModuleRole::Program
        }
    }
}

/// Whether a file is CPython, or of its standard library.
pub fn is_interpreter(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let of_library = || path.windows(13).any(|part| part == b"/lib-dynload/");
    name.starts_with(b"python3") || name.starts_with(b"libpython3") || of_library()
}

/// Whether the frame is the malloc family itself, wherever it is defined.
pub fn is_family(role: ModuleRole, frame: &SourceFrame) -> bool {
    role == ModuleRole::Larder
        || frame.function.as_ref().is_some_and(|function| {
            let symbol = &*function.symbol;
            family().any(|name| name == symbol || name == &*function.name)
                || is_operator_new_or_delete(symbol)
                || is_allocators_inside(symbol)
                // A program's global allocator, in Rust.
                || function.name.contains(" as core::alloc::global::GlobalAlloc>::")
                || symbol.starts_with("_R")
                    && family().any(|name| function.name.ends_with(&format!("::{name}")))
        })
}

/// The names of the malloc family.
fn family() -> impl Iterator<Item = &'static str> {
    let made = AllocCall::ALL.iter().map(|call| call.name());
    let ended = FreeCall::ALL.iter().map(|call| call.name());
    made.chain(ended).chain(FAMILY_INSIDE.iter().copied())
}

/// Larder's own functions, where it is linked into the program.
fn is_allocators_inside(symbol: &str) -> bool {
    symbol.starts_with("_ZN6larder") && !is_rust_symbol(symbol)
}

fn is_operator_new_or_delete(symbol: &str) -> bool {
    ["_Znw", "_Zna", "_Zdl", "_Zda"]
        .iter()
        .any(|prefix| symbol.starts_with(prefix))
        || symbol.starts_with("operator new")
        || symbol.starts_with("operator delete")
}

/// Whether the frame is passed over as long as there is another.
pub fn is_plumbing(role: ModuleRole, frame: &SourceFrame) -> bool {
    if role != ModuleRole::Program || is_family(role, frame) {
        return true;
    }
    match &frame.file {
        Some(file) => is_standard_library_file(file),
        None => is_standard_library_symbol(frame),
    }
}

/// Whether it is an allocation function by its name alone.
pub fn is_known_wrapper(frame: &SourceFrame) -> bool {
    frame
        .function
        .as_ref()
        .is_some_and(|function| KNOWN_WRAPPERS.contains(&&*function.symbol))
}

fn is_standard_library_file(file: &str) -> bool {
    file.contains("/include/c++/")
        // glibc's inline functions: those that check the buffer's size have the function's own name.
        || file.contains("/include/") && file.contains("/bits/")
        || file.starts_with("/rustc/")
        || file.starts_with("/rust/deps/")
        || file.contains("/lib/rustlib/src/rust/library/")
        || is_pythons_library(file)
}

/// Python's standard library, parts of which are compiled into the interpreter; not packages installed beside it.
fn is_pythons_library(file: &str) -> bool {
    file.starts_with("<frozen ")
        || file.contains("/lib/python3.")
            && !file.contains("/site-packages/")
            && !file.contains("/dist-packages/")
}

/// For functions without debug information, which have nothing but a name.
fn is_standard_library_symbol(frame: &SourceFrame) -> bool {
    let Some(function) = &frame.function else {
        return false;
    };
    let cpp = [
        "_ZNSt",
        "_ZNKSt",
        "_ZSt",
        "_ZNSa",
        "_ZNSs",
        "_ZN9__gnu_cxx",
        "_ZNK9__gnu_cxx",
    ];
    let rust = [
        "alloc::",
        "core::",
        "std::",
        "<alloc::",
        "<core::",
        "<std::",
        "hashbrown::",
    ];
    cpp.iter().any(|prefix| function.symbol.starts_with(prefix))
        || (is_rust_symbol(&function.symbol)
            && rust.iter().any(|prefix| function.name.starts_with(prefix)))
}

fn is_rust_symbol(symbol: &str) -> bool {
    rustc_demangle::try_demangle(symbol).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::FunctionName;

    fn frame(symbol: &str, file: Option<&str>) -> SourceFrame {
        SourceFrame {
            function: Some(FunctionName::new(symbol, None)),
            file: file.map(Into::into),
            line: file.map(|_| 1),
            inlined: false,
        }
    }

    fn skipped(symbol: &str, file: Option<&str>) -> bool {
        is_plumbing(ModuleRole::Program, &frame(symbol, file))
    }

    #[test]
    fn standard_library_code_is_plumbing_wherever_it_is_compiled_to() {
        assert!(skipped(
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            Some("/usr/include/c++/12/bits/x.h")
        ));
        assert!(skipped("_ZNSt6vectorIiSaIiEE9push_backERKi", None));
        assert!(skipped(
            "_ZN5alloc7raw_vec11finish_grow17h0123456789abcdefE",
            None
        ));
        assert!(skipped(
            "x",
            Some("/rustc/abc/library/alloc/src/raw_vec.rs")
        ));
        assert!(skipped("_Znwm", None));
        assert!(skipped("malloc", Some("/home/u/interpose.c")));
    }

    #[test]
    fn pythons_library_is_plumbing_and_packages_are_not() {
        assert!(skipped(
            "loads",
            Some("/usr/lib/python3.11/json/__init__.py")
        ));
        assert!(skipped(
            "_find_and_load",
            Some("<frozen importlib._bootstrap>")
        ));
        let packages = "/usr/local/lib/python3.11/dist-packages/regex/regex.py";
        assert!(!skipped("compile", Some(packages)));
        assert!(!skipped("<module>", Some("/home/u/script.py")));
        assert!(is_interpreter(b"/usr/bin/python3.11"));
        assert!(is_interpreter(b"/opt/lib/libpython3.13.so.1.0"));
        assert!(is_interpreter(
            b"/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so"
        ));
        assert!(!is_interpreter(b"/usr/lib/python3/dist-packages/_regex.so"));
    }

    #[test]
    fn the_programs_own_code_is_not() {
        assert!(!skipped("_ZN6Parser5parseEv", Some("/home/u/parser.cc")));
        assert!(!skipped("_ZN6Parser5parseEv", None));
        assert!(!skipped("mallocate", None));
        // A specialisation in namespace std that the program wrote.
        assert!(!skipped("_ZNKSt4hashI3FooEclERKS0_", Some("/home/u/foo.h")));
    }

    #[test]
    fn run_time_libraries_are_known_by_their_file_name() {
        assert_eq!(ModuleRole::of("libc.so.6"), ModuleRole::System);
        assert_eq!(ModuleRole::of("ld-linux-x86-64.so.2"), ModuleRole::System);
        assert_eq!(ModuleRole::of("liblarder_record.so"), ModuleRole::Larder);
        assert_eq!(ModuleRole::of("liblarder_minimal.so"), ModuleRole::Larder);
        assert_eq!(ModuleRole::of("liblarder-0123.so"), ModuleRole::Program);
        assert_eq!(ModuleRole::of("libcurl.so.4"), ModuleRole::Program);
    }

    #[test]
    fn known_wrappers_are_known_by_their_exact_name() {
        assert!(is_known_wrapper(&frame("xmalloc", Some("/src/xmalloc.c"))));
        assert!(!is_known_wrapper(&frame(
            "xmalloc_pool_make",
            Some("/src/pool.c")
        )));
    }

    #[test]
    fn the_allocator_is_family_where_it_is_linked_in() {
        let linked = frame(
            "_ZN6larder10ThreadHeap6refillEm",
            Some("/src/thread_heap.cc"),
        );
        assert!(is_family(ModuleRole::Program, &linked));
        let tool = frame("_ZN6larder4main17h0123456789abcdefE", Some("/src/main.rs"));
        assert!(!is_family(ModuleRole::Program, &tool));
        // `<larder_malloc::Larder as core::alloc::global::GlobalAlloc>::alloc`, by both manglings.
        for symbol in [
            "_RNvXCsh1q9XgrIRhQ_13larder_mallocNtB2_6LarderNtNtNtCs1_4core5alloc6global11GlobalAlloc5alloc",
            "_ZN74_$LT$larder_malloc..Larder$u20$as$u20$core..alloc..global..GlobalAlloc$GT$5alloc17h0123456789abcdefE",
        ] {
            let method = frame(symbol, Some("/src/lib.rs"));
            assert!(is_family(ModuleRole::Program, &method), "{method:?}");
        }
    }
}
