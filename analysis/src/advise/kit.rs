//! The part of the kit (`include/larder/kit`) that a cure can be written with, in lines that fit the site.
//!
//! Invariant: every line compiles, as C11, with the names that it leaves to the reader declared.

use serde_json::{Value, json};

use super::calls::{self, Conversion};
use super::element::AllocatedType;
use super::facts::Site;
use super::finding::{Finding, Pattern};
use crate::reading::attribute::functions;
use crate::reading::resolve::ChainFrame;
use crate::reading::sites::SiteStack;

/// A header, and lines that use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Kit {
    pub header: &'static str,
    pub code: Vec<String>,
}

/// Room on the stack where a finding knows no size.
const USUAL_BYTES: u64 = 256;

impl Kit {
    fn new<const N: usize>(header: &'static str, code: [&str; N]) -> Option<Kit> {
        let code = code.map(str::to_owned).to_vec();
        Some(Kit { header, code })
    }

    /// For a finding at a line of C or C++, whose blocks hold elements of this type.
    pub fn of(finding: &Finding, site: &Site, element: Option<&AllocatedType>) -> Option<Kit> {
        if !is_c(site.site_frame()) {
            return None;
        }
        let bytes = finding.size_bytes.unwrap_or(USUAL_BYTES);
        // A macro takes a comma for the end of its argument.
        let element = element.filter(|found| found.size_bytes > 0 && !found.name.contains(','));
        let (name, size) = element.map_or(("char", 1), |found| (&found.name, found.size_bytes));
        Kit::of_pattern(finding.pattern, bytes, (name, size))
    }

    /// `conversion`: that of a format which has only one.
    pub fn of_calls(
        pattern: calls::Pattern,
        conversion: Option<Conversion>,
        stack: &SiteStack,
    ) -> Option<Kit> {
        let frame = stack
            .site
            .and_then(|site| functions(&stack.chain).nth(site));
        match is_c(frame) {
            true => Kit::of_call_pattern(pattern, conversion),
            false => None,
        }
    }

    /// `element`: the name and the size of its type.
    fn of_pattern(pattern: Pattern, bytes: u64, element: (&str, u64)) -> Option<Kit> {
        let (name, size) = element;
        let count = bytes.div_ceil(size);
        // The kit copies elements as bytes, which a class of C++ may not allow.
        let is_class = name.contains(['<', ':']);
        match pattern {
            Pattern::Stack | Pattern::Inline if is_class => None,
            Pattern::Reuse | Pattern::Reserve | Pattern::GrowByFactor if size != 1 => None,
            Pattern::Stack | Pattern::Inline => Kit::new(
                "small_array.h",
                [
                    &format!("LARDER_SMALL_ARRAY(array, {name}, {count});"),
                    "array local; array_init(&local);",
                    "if (!array_append(&local, data, count)) return 0;",
                ],
            ),
            Pattern::Reuse => Kit::new(
                "bytes.h",
                [
                    "larder_bytes_truncate(&kept, 0);",
                    "if (!larder_bytes_append(&kept, data, size)) return 0;",
                ],
            ),
            Pattern::Reserve | Pattern::GrowByFactor => Kit::new(
                "bytes.h",
                [
                    &format!("if (!larder_bytes_reserve(&text, {bytes})) return 0;"),
                    "if (!larder_bytes_append(&text, data, size)) return 0;",
                ],
            ),
            Pattern::Arena => Kit::new(
                "arena.h",
                [
                    "larder_arena_mark mark = larder_arena_get_mark(&arena);",
                    "struct item *item = larder_arena_alloc(&arena, sizeof *item);",
                    "larder_arena_reset(&arena, mark);",
                ],
            ),
            Pattern::Embed => Kit::new(
                "list.h",
                [
                    "struct entry { larder_list_node node; int value; };",
                    "larder_list_push_back(&entries, &entry->node);",
                    "larder_list_remove(&entry->node);",
                ],
            ),
            Pattern::Tiny => Kit::new(
                "pool.h",
                [
                    "struct item *item = larder_pool_get(&pool);",
                    "if (item == NULL) return 0;",
                    "larder_pool_put(&pool, item);",
                ],
            ),
            Pattern::Duplicates => intern(),
            Pattern::Copied => shared(),
            _ => None,
        }
    }

    fn of_call_pattern(pattern: calls::Pattern, conversion: Option<Conversion>) -> Option<Kit> {
        match pattern {
            calls::Pattern::OneConversion => {
                let write = match conversion? {
                    Conversion::Signed => {
                        "size_t size = larder_number_write_int64(digits, number);"
                    }
                    Conversion::Unsigned => {
                        "size_t size = larder_number_write_uint64(digits, number);"
                    }
                    Conversion::Character | Conversion::Text => return None,
                };
                Kit::new("number.h", ["char digits[LARDER_NUMBER_BYTES];", write])
            }
            calls::Pattern::FormattedThenCopied => Kit::new(
                "number.h",
                [
                    "char *at = larder_bytes_prepare(&text, 20);",
                    "if (at == NULL) return 0;",
                    "larder_bytes_commit(&text, larder_number_write_int64(at, number));",
                ],
            ),
            calls::Pattern::ReadThenCopied => Kit::new(
                "bytes.h",
                [
                    "char *at = larder_bytes_prepare(&text, size);",
                    "ssize_t got = at == NULL ? -1 : read(descriptor, at, size);",
                    "if (got > 0) larder_bytes_commit(&text, (size_t)got);",
                ],
            ),
            calls::Pattern::SmallWrites => Kit::new(
                "bytes.h",
                [
                    "if (!larder_bytes_append(&text, data, size)) return 0;",
                    "if (text.size < 4096) return 1;",
                    "if (write(descriptor, text.data, text.size) > 0) larder_bytes_truncate(&text, 0);",
                ],
            ),
            calls::Pattern::SameText => intern(),
            calls::Pattern::CopiedOn | calls::Pattern::SourceLivesOn => shared(),
            _ => None,
        }
    }

    /// One line of text for the header, and the code.
    pub fn lines(&self) -> Vec<String> {
        let header = format!("#include <larder/kit/{}>", self.header);
        [header]
            .into_iter()
            .chain(self.code.iter().cloned())
            .collect()
    }

    pub fn json(&self) -> Value {
        json!({ "header": format!("larder/kit/{}", self.header), "code": self.code })
    }
}

fn intern() -> Option<Kit> {
    Kit::new(
        "intern.h",
        ["const char *text = larder_intern_add(&texts, data, size);"],
    )
}

fn shared() -> Option<Kit> {
    Kit::new(
        "buffer.h",
        [
            "larder_buffer view;",
            "larder_buffer_share(&buffer, 0, size, &view);",
            "larder_buffer_release(&view);",
        ],
    )
}

/// Whether the line is in a file of C or C++.
fn is_c(frame: Option<&ChainFrame>) -> bool {
    const ENDINGS: [&str; 8] = ["c", "h", "cc", "cpp", "cxx", "hpp", "hh", "C"];
    let file = frame.and_then(|frame| frame.source.file.as_deref());
    let ending = file.and_then(|file| file.rsplit_once('.'));
    ending.is_some_and(|(_, ending)| ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// What the lines leave to the reader.
    const NAMES: &str = "
struct item { int value; };
struct entry;
extern larder_bytes kept, text;
extern larder_arena arena;
extern larder_list entries;
extern struct entry *entry;
extern larder_pool pool;
extern larder_intern texts;
extern larder_buffer buffer;
extern const char *data;
extern size_t size, count;
extern long number;
extern int descriptor;
";

    /// The lines of a part as a function, behind those that must be outside of one.
    fn source(kit: &Kit) -> String {
        let parts = [
            "arena",
            "buffer",
            "bytes",
            "intern",
            "list",
            "number",
            "pool",
            "small_array",
        ];
        let includes = parts.map(|part| format!("#include <larder/kit/{part}.h>\n"));
        let outside =
            |line: &&String| line.starts_with("LARDER_") || line.starts_with("struct entry {");
        let (before, within): (Vec<_>, Vec<_>) = kit.code.iter().partition(outside);
        let join = |lines: Vec<&String>| {
            lines
                .into_iter()
                .fold(String::new(), |all, line| all + line + "\n")
        };
        format!(
            "#include <unistd.h>\n{}{NAMES}{}larder_bool use(void);\nlarder_bool use(void) {{\n{}return 1;\n}}\n",
            includes.concat(),
            join(before),
            join(within),
        )
    }

    #[test]
    fn every_line_compiles() {
        let patterns = [
            Pattern::Stack,
            Pattern::Reuse,
            Pattern::Arena,
            Pattern::Reserve,
            Pattern::GrowByFactor,
            Pattern::Embed,
            Pattern::Inline,
            Pattern::Tiny,
            Pattern::Duplicates,
            Pattern::Copied,
        ];
        let kits = patterns
            .into_iter()
            .map(|pattern| Kit::of_pattern(pattern, 64, ("char", 1)));
        let calls = [
            calls::Pattern::FormattedThenCopied,
            calls::Pattern::ReadThenCopied,
            calls::Pattern::SmallWrites,
            calls::Pattern::CopiedOn,
            calls::Pattern::OneConversion,
        ];
        let signed = Some(Conversion::Signed);
        let calls = calls.map(|pattern| Kit::of_call_pattern(pattern, signed));
        let unsigned = Some(Conversion::Unsigned);
        let unsigned = Kit::of_call_pattern(calls::Pattern::OneConversion, unsigned);
        let kits = kits.chain(calls).chain([unsigned]);
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
        let directory = tempfile::tempdir().unwrap();
        for kit in kits {
            let kit = kit.expect("a part");
            assert!(kit.code.len() <= 3, "{kit:?}");
            assert!(
                include.join("larder/kit").join(kit.header).is_file(),
                "{kit:?}"
            );
            let file = directory.path().join("kit.c");
            let text = source(&kit);
            std::fs::write(&file, &text).unwrap();
            let mut cc = Command::new("cc");
            cc.args([
                "-std=c11",
                "-D_POSIX_C_SOURCE=200809L",
                "-Wall",
                "-Wextra",
                "-Werror",
            ]);
            cc.args([
                "-Wno-unused-variable",
                "-Wno-unused-function",
                "-fsyntax-only",
                "-I",
            ]);
            let result = cc.arg(&include).arg(&file).output().unwrap();
            let complaints = String::from_utf8_lossy(&result.stderr);
            assert!(result.status.success(), "{text}\n{complaints}");
        }
        let of_struct = Kit::of_pattern(Pattern::Stack, 20, ("struct pollfd", 8)).expect("a part");
        assert_eq!(
            of_struct.code[0],
            "LARDER_SMALL_ARRAY(array, struct pollfd, 3);"
        );
        assert_eq!(Kit::of_pattern(Pattern::Hot, 64, ("char", 1)), None);
        for pattern in [Pattern::Reuse, Pattern::Reserve, Pattern::GrowByFactor] {
            assert_eq!(Kit::of_pattern(pattern, 64, ("int", 4)), None);
        }
        let class = ("std::string", 32);
        assert_eq!(Kit::of_pattern(Pattern::Stack, 64, class), None);
        assert!(Kit::of_pattern(Pattern::Arena, 64, class).is_some());
    }
}
