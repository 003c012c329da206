//! Generates the layouts of a heap's structures from the allocator's own headers, so that they are
//! written down once: a `layout!` for each structure, with each field's offset by the rules of a C++
//! compiler, and a module of constants for each enumeration.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

const LAYOUTS: &str = "../alloc/base/layout.h";
/// The header, the enumeration there, the module that is generated, and the type of its constants.
const ENUMERATIONS: [(&str, &str, &str, &str); 3] = [
    ("../alloc/base/stats.h", "enum Counter", "counter", "usize"),
    ("../alloc/core/slab.h", "enum class Kind", "kind", "u8"),
    (
        "../alloc/statistics/heap_walk.h",
        "enum class Part",
        "part",
        "usize",
    ),
];
/// The source, and a number that is written there as `name = number`, `a << b` or `a * b`.
const NUMBERS: [(&str, &str); 10] = [
    ("../alloc/base/base.h", "kPageShift"),
    ("../alloc/base/base.h", "kSegmentShift"),
    ("../alloc/base/base.h", "kSmallMax"),
    ("../alloc/base/policy.h", "kDescriptorSearchBytes"),
    ("../alloc/base/policy.h", "kMaxSuppressionBytes"),
    ("../alloc/leak/roots.cc", "kRedZone"),
    ("../alloc/leak/roots.cc", "kThreadBytes"),
    ("../alloc/core/slab.h", "kLinkTagShift"),
    ("../alloc/core/slab.h", "kStateMask"),
    ("../alloc/core/remote_word.cc", "kGenerationShift"),
];
/// The names of `enum class Part`, in its order: the first string of each row of this table.
const PART_NAMES: (&str, &str) = ("../alloc/statistics/statistics.cc", "kKinds[] = {");

fn main() {
    let mut out = String::new();
    for structure in read(LAYOUTS).split("\nstruct ").skip(1) {
        let (head, rest) = structure.split_once('{').expect("a structure has fields");
        let (fields, _) = rest.split_once("};").expect("a structure ends");
        write_layout(head.trim(), fields, &mut out);
    }
    for (header, name, module, kind) in ENUMERATIONS {
        write_enumeration(&read(header), name, (module, kind), &mut out);
    }
    for (source, name) in NUMBERS {
        write_number(&read(source), name, &mut out);
    }
    write_part_names(&mut out);
    let folder = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join("layouts.rs"), out).expect("it can be written");
}

/// Reads a header, and strips its comments.
fn read(header: &str) -> String {
    println!("cargo::rerun-if-changed={header}");
    let text = fs::read_to_string(header).unwrap_or_else(|error| panic!("{header}: {error}"));
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The size in bytes and the Rust type; not for arrays.
fn size_of(kind: &str) -> (usize, &'static str) {
    match kind {
        "uint16_t" => (2, "u16"),
        "uint32_t" => (4, "u32"),
        "uint64_t" => (8, "u64"),
        _ if kind.contains('*') => (8, "u64"),
        _ => panic!("{LAYOUTS}: the type {kind} is not known here"),
    }
}

fn write_layout(name: &str, fields: &str, out: &mut String) {
    let mut offset = 0;
    let mut listed = String::new();
    for declaration in fields
        .split(';')
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        if let Some((_, version)) = declaration.split_once("kVersion = ") {
            writeln!(out, "pub const VERSION: u32 = {version};").expect("a string takes all");
            continue;
        }
        let declaration = declaration.split(" = ").next().unwrap_or_default();
        let is_type = |c: char| !c.is_whitespace() && c != '*';
        let first = declaration.split(',').next().unwrap_or_default().trim();
        let name = first.rsplit(|c| !is_type(c)).next().unwrap_or_default();
        let kind = first.strip_suffix(name).unwrap_or_default().trim();
        let names = declaration.strip_prefix(kind).unwrap_or_default();
        for name in names.split(',') {
            let name = name.trim_start_matches(|c| !is_type(c));
            if let Some((name, rest)) = name.split_once('[') {
                let count: usize = rest.trim_end_matches(']').parse().expect("a number");
                write!(listed, "{name}: [u8; {count}] = {offset},").expect("a string takes all");
                offset += count;
                continue;
            }
            let (size, kind) = size_of(kind);
            offset = offset.next_multiple_of(size);
            write!(listed, "{name}: {kind} = {offset},").expect("a string takes all");
            offset += size;
        }
    }
    let bytes = offset.next_multiple_of(8);
    writeln!(out, "layout! {{ {name} {bytes} {{ {listed} }} }}").expect("a string takes all");
}

fn write_enumeration(text: &str, name: &str, (module, kind): (&str, &str), out: &mut String) {
    let (_, rest) = text
        .split_once(name)
        .unwrap_or_else(|| panic!("there is no {name}"));
    let (_, rest) = rest.split_once('{').expect("an enumeration has names");
    let (names, _) = rest.split_once('}').expect("an enumeration ends");
    let names = names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    writeln!(
        out,
        "#[allow(dead_code, reason = \"not all are read\")]\npub mod {module} {{"
    )
    .expect("a string takes all");
    for (value, name) in names.enumerate() {
        writeln!(out, "    pub const {}: {kind} = {value};", constant(name))
            .expect("a string takes all");
    }
    out.push_str("}\n");
}

/// `kPageShift` is `PAGE_SHIFT`.
fn constant(name: &str) -> String {
    let mut out = String::new();
    for c in name.trim_start_matches('k').chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_uppercase());
    }
    out
}

fn write_number(text: &str, name: &str, out: &mut String) {
    let (_, rest) = text
        .split_once(&format!("{name} = "))
        .unwrap_or_else(|| panic!("there is no {name}"));
    let text = rest.split([';', ',']).next().unwrap_or_default();
    let value = value(text).unwrap_or_else(|| panic!("{name} is not a number"));
    writeln!(out, "pub const {}: u64 = {value};", constant(name)).expect("a string takes all");
}

fn value(text: &str) -> Option<u64> {
    if let Some((a, b)) = text.split_once(" << ") {
        return Some(value(a)? << value(b)?);
    }
    if let Some((a, b)) = text.split_once(" * ") {
        return Some(value(a)? * value(b)?);
    }
    let digits = text
        .trim_start_matches("size_t{")
        .trim_end_matches([' ', '}']);
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

fn write_part_names(out: &mut String) {
    let (source, table) = PART_NAMES;
    let text = read(source);
    let (_, rest) = text.split_once(table).expect("there is a table of names");
    let (rows, _) = rest.split_once("};").expect("the table ends");
    let names: Vec<&str> = rows.split('"').skip(1).step_by(2).collect();
    writeln!(out, "pub const KINDS: [&str; {}] = {names:?};", names.len())
        .expect("a string takes all");
}
