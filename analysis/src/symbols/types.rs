//! Types from a module's debug information: the type for which a container of the C++ or Rust library
//! is instantiated at an address, and that of a C expression there.
//!
//! Only the compilation unit of the address is read; costs and limits are those of `dwarf`. Circular
//! references are given up after `MOST_STEPS`. A type without a name or a size is ignored.

use std::time::SystemTime;

use addr2line::gimli::{DwTag, constants as dw};
use larder_base::order;

use super::dwarf::{Entry, ModuleDwarf, UnitView, number};

/// Typedefs, qualifiers and pointers in a row.
const MOST_STEPS: usize = 16;
/// Unnamed members within unnamed members.
const MOST_NESTED: usize = 4;
/// Functions inlined into each other at one address.
const MOST_INLINED: usize = 256;
const MOST_NAME_CHARS: usize = 512;

/// A type of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedType {
    /// The name in source form, with namespaces; in C with `struct` or `union`.
    pub name: String,
    pub size_bytes: u64,
}

/// A type as named in source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeExpression {
    Type {
        tag: Option<Tag>,
        name: String,
        pointers: usize,
    },
    /// The type of a value: of a variable or parameter, and of the operations on it.
    Value { variable: String, steps: Vec<Step> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    Struct,
    Union,
    Enum,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `.name` or `->name`.
    Member(String),
    /// `*` or `[…]`.
    Element,
}

/// A function at an address of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePlace {
    pub address: u64,
    /// The number of functions inlined into it at this address.
    pub depth: usize,
    /// The number of functions at this address, including it and those that it is inlined into.
    pub functions: usize,
}

/// A module's types.
#[derive(Clone, Copy)]
pub struct ModuleTypes<'d>(pub &'d ModuleDwarf);

impl ModuleTypes<'_> {
    /// The time of modification of the file with the debug information.
    pub fn modified(&self) -> Option<SystemTime> {
        self.0.modified()
    }

    /// The element type of the innermost container or allocator of the library, of the functions
    /// inlined into the one at this place.
    pub fn of_template(&self, place: CodePlace) -> Option<NamedType> {
        self.0.ask(place.address, |unit| {
            let functions = functions_at(unit, place)?;
            let mut inner = functions.iter().take(place.depth);
            let argument = inner.find_map(|function| container_argument(unit, function))?;
            let element = match argument.tag() {
                // For make_unique<T[]>.
                dw::DW_TAG_array_type => unit.referred(&argument, dw::DW_AT_type)?,
                _ => argument,
            };
            named_type(unit, &element)
        })
    }

    /// The type that an expression of the function at this place has.
    pub fn of_expression(
        &self,
        place: CodePlace,
        expression: &TypeExpression,
    ) -> Option<NamedType> {
        self.0.ask(place.address, |unit| match expression {
            TypeExpression::Type {
                tag,
                name,
                pointers: 0,
            } => {
                // A variable hides the type of its name.
                let variable = || value_type(unit, place, name, &[]);
                let variable = tag.is_none().then(variable).flatten();
                variable.or_else(|| type_by_name(unit, *tag, name))
            }
            TypeExpression::Type {
                tag,
                name,
                pointers,
            } => pointer_type(unit, *tag, name, *pointers),
            TypeExpression::Value { variable, steps } => value_type(unit, place, variable, steps),
        })
    }

    /// The structure to which the function at this address returns a pointer.
    pub fn of_result(&self, address: u64) -> Option<NamedType> {
        self.0.ask(address, |unit| {
            let function = origin(unit, &physical_at(unit, address)?);
            let declared = follow(unit, &function, dw::DW_AT_specification);
            let returned = unit.referred(&function, dw::DW_AT_type);
            let returned = returned.or_else(|| unit.referred(&declared, dw::DW_AT_type))?;
            let pointer = bare(unit, &returned).filter(|entry| is_pointer(entry.tag()))?;
            let target = unit.referred(&pointer, dw::DW_AT_type)?;
            let is_structure = matches!(
                bare(unit, &target)?.tag(),
                dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type
            );
            is_structure.then(|| named_type(unit, &target))?
        })
    }
}

fn pointer_type(
    unit: &UnitView<'_>,
    tag: Option<Tag>,
    name: &str,
    pointers: usize,
) -> Option<NamedType> {
    let pointee = match type_by_name(unit, tag, name) {
        Some(pointee) => pointee.name,
        None if name == "void" => name.to_owned(),
        None => return None,
    };
    Some(NamedType {
        name: pointee + &"*".repeat(pointers.min(MOST_STEPS)),
        size_bytes: unit.address_bytes(),
    })
}

fn value_type(
    unit: &UnitView<'_>,
    place: CodePlace,
    variable: &str,
    steps: &[Step],
) -> Option<NamedType> {
    let functions = functions_at(unit, place)?;
    let mut found = variable_type(unit, functions.get(place.depth)?, variable)?;
    for step in steps {
        found = match step {
            Step::Element => element_type(unit, &found)?,
            Step::Member(name) => member_type(unit, &found, name, MOST_NESTED)?,
        };
    }
    named_type(unit, &found)
}

/// The entries of the functions at an address, innermost first; an inlined or copied function by its
/// abstract instance. `None` if their number is not the expected one.
fn functions_at<'d>(unit: &UnitView<'d>, place: CodePlace) -> Option<Vec<Entry<'d>>> {
    let address = place.address;
    let physical = physical_at(unit, address)?;
    let mut found = vec![origin(unit, &physical)];
    let descend = |entry: &Entry<'d>| {
        let tag = entry.tag();
        tag == dw::DW_TAG_inlined_subroutine || tag == dw::DW_TAG_lexical_block
    };
    let _ = unit.below(&physical, descend, |entry| {
        if entry.tag() == dw::DW_TAG_inlined_subroutine && unit.has_code_at(entry, address) {
            found.push(origin(unit, entry));
        }
        found.len() >= MOST_INLINED
    });
    found.reverse();
    (found.len() == place.functions).then_some(found)
}

/// The function with code at an address.
fn physical_at<'d>(unit: &UnitView<'d>, address: u64) -> Option<Entry<'d>> {
    let entries = unit.index.functions.iter();
    let mut functions = entries.filter_map(|offset| unit.entry_at(*offset));
    functions.find(|entry| unit.has_code_at(entry, address))
}

fn origin<'d>(unit: &UnitView<'d>, entry: &Entry<'d>) -> Entry<'d> {
    follow(unit, entry, dw::DW_AT_abstract_origin)
}

/// The last entry of a chain of references.
fn follow<'d>(unit: &UnitView<'d>, entry: &Entry<'d>, attribute: dw::DwAt) -> Entry<'d> {
    let mut at = entry.clone();
    for _ in 0..MOST_STEPS {
        match unit.referred(&at, attribute) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// The element type of the container or allocator whose member function this is.
fn container_argument<'d>(unit: &UnitView<'d>, function: &Entry<'d>) -> Option<Entry<'d>> {
    let declared = follow(unit, function, dw::DW_AT_specification);
    let name = unit
        .name(function)
        .or_else(|| unit.name(&declared))
        .unwrap_or_default();
    let around: Vec<Entry<'d>> = unit.around(&declared).take(MOST_STEPS).collect();
    let names: Vec<_> = around.iter().map(|scope| unit.name(scope)).collect();
    let namespace = names.last()?.as_deref()?;
    let class = without_arguments(names.first()?.as_deref()?);
    let of_class = || template_argument(unit, around.first()?, None);
    let of_function = |parameter| {
        template_argument(unit, function, parameter)
            .or_else(|| template_argument(unit, &declared, parameter))
    };
    match (namespace, class) {
        (
            "std" | "__gnu_cxx",
            "allocator" | "new_allocator" | "__new_allocator" | "malloc_allocator",
        ) if name.starts_with("allocate") => of_class(),
        ("std", "vector" | "_Vector_base") => of_class(),
        ("std", _) if without_arguments(&name) == "make_unique" => of_function(None),
        ("alloc", _) => {
            let second = names.len().checked_sub(2).and_then(|at| names.get(at));
            let module = second.and_then(Option::as_deref);
            let known = matches!(module, Some("raw_vec" | "vec" | "boxed"));
            let class = || template_argument(unit, around.first()?, Some("T"));
            known.then(|| of_function(Some("T")).or_else(class))?
        }
        _ => None,
    }
}

fn without_arguments(name: &str) -> &str {
    name.split('<').next().unwrap_or(name)
}

/// The type of the template parameter of this name, or of the first.
fn template_argument<'d>(
    unit: &UnitView<'d>,
    template: &Entry<'d>,
    parameter: Option<&str>,
) -> Option<Entry<'d>> {
    let mut found = None;
    unit.below(
        template,
        |_| false,
        |entry| {
            let right = entry.tag() == dw::DW_TAG_template_type_parameter
                && parameter.is_none_or(|name| unit.name(entry).as_deref() == Some(name));
            if right {
                found = unit.referred(entry, dw::DW_AT_type);
            }
            right
        },
    )?;
    found
}

fn is_qualifier(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type
    )
}

fn is_pointer(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type
    )
}

/// A type without typedefs and qualifiers.
fn bare<'d>(unit: &UnitView<'d>, entry: &Entry<'d>) -> Option<Entry<'d>> {
    let mut at = entry.clone();
    for _ in 0..MOST_STEPS {
        if at.tag() != dw::DW_TAG_typedef && !is_qualifier(at.tag()) {
            return Some(at);
        }
        at = unit.referred(&at, dw::DW_AT_type)?;
    }
    None
}

/// The target of a pointer, or the element of an array.
fn element_type<'d>(unit: &UnitView<'d>, entry: &Entry<'d>) -> Option<Entry<'d>> {
    let bare = bare(unit, entry)?;
    let has_elements = is_pointer(bare.tag()) || bare.tag() == dw::DW_TAG_array_type;
    has_elements.then(|| unit.referred(&bare, dw::DW_AT_type))?
}

/// The type of a member of a structure, or of a pointer's target.
fn member_type<'d>(
    unit: &UnitView<'d>,
    entry: &Entry<'d>,
    name: &str,
    nested: usize,
) -> Option<Entry<'d>> {
    let mut structure = bare(unit, entry)?;
    if is_pointer(structure.tag()) {
        structure = bare(unit, &unit.referred(&structure, dw::DW_AT_type)?)?;
    }
    let mut found = None;
    let mut unnamed = Vec::new();
    unit.below(
        &structure,
        |_| false,
        |member| {
            if member.tag() != dw::DW_TAG_member {
                return false;
            }
            match unit.name(member) {
                Some(member_name) if member_name == name => {
                    found = unit.referred(member, dw::DW_AT_type);
                    return true;
                }
                None => unnamed.extend(unit.referred(member, dw::DW_AT_type)),
                Some(_) => {}
            }
            false
        },
    )?;
    let deeper = nested.checked_sub(1)?;
    let mut unnamed = unnamed.iter();
    found.or_else(|| unnamed.find_map(|entry| member_type(unit, entry, name, deeper)))
}

/// The type of a variable or parameter of a function, or else of a global variable. `None` if several
/// of this name have different types.
fn variable_type<'d>(unit: &UnitView<'d>, function: &Entry<'d>, name: &str) -> Option<Entry<'d>> {
    let is_it = |entry: &Entry<'d>| unit.name(entry).as_deref() == Some(name);
    let mut found: Vec<Entry<'d>> = Vec::new();
    unit.below(
        function,
        |entry| entry.tag() == dw::DW_TAG_lexical_block,
        |entry| {
            let variable = matches!(
                entry.tag(),
                dw::DW_TAG_variable | dw::DW_TAG_formal_parameter
            );
            if variable && is_it(entry) {
                found.extend(unit.referred(entry, dw::DW_AT_type));
            }
            false
        },
    )?;
    if found.is_empty() {
        let globals = unit.index.variables.iter();
        let globals = globals.filter_map(|offset| unit.entry_at(*offset));
        found = globals
            .filter(is_it)
            .filter_map(|entry| unit.referred(&entry, dw::DW_AT_type))
            .collect();
    }
    let first = found.first()?.clone();
    let same = |entry: &Entry<'d>| entry.offset() == first.offset();
    found.iter().all(same).then_some(first)
}

/// The one type of this name that has a size.
fn type_by_name(unit: &UnitView<'_>, tag: Option<Tag>, name: &str) -> Option<NamedType> {
    let last = name.rsplit("::").next().unwrap_or(name);
    let mut found: Option<NamedType> = None;
    for offset in &unit.index.types {
        let Some(entry) = unit.entry_at(*offset) else {
            continue;
        };
        let fits = match entry.tag() {
            dw::DW_TAG_base_type => tag.is_none() && is_base(unit, &entry, name),
            kind => has_tag(kind, tag, unit.is_c) && unit.name(&entry).is_some_and(|n| n == last),
        };
        if !fits {
            continue;
        }
        let Some(named) = named_type(unit, &entry).filter(|named| ends_with(&named.name, name))
        else {
            continue;
        };
        if found.as_ref().is_some_and(|found| *found != named) {
            return None;
        }
        found = Some(named);
    }
    found
}

/// In C a structure is named with its keyword, in C++ it need not be.
fn has_tag(kind: DwTag, tag: Option<Tag>, is_c: bool) -> bool {
    match (kind, tag) {
        (dw::DW_TAG_structure_type | dw::DW_TAG_class_type, Some(Tag::Struct))
        | (dw::DW_TAG_union_type, Some(Tag::Union))
        | (dw::DW_TAG_enumeration_type, Some(Tag::Enum))
        | (dw::DW_TAG_typedef, None) => true,
        (_, None) => !is_c,
        _ => false,
    }
}

/// `unsigned long` is the compiler's `long unsigned int`.
fn is_base<'d>(unit: &UnitView<'d>, entry: &Entry<'d>, name: &str) -> bool {
    let words = |name: &str| {
        let mut words: Vec<String> = name.split_whitespace().map(str::to_owned).collect();
        words.retain(|word| word != "int");
        order::sort_by(&mut words, Ord::cmp);
        words
    };
    let known = unit.name(entry).unwrap_or_default();
    known == name || (!name.is_empty() && words(&known) == words(name))
}

/// Whether `name` is the end of a qualified name: `b::T` of `a::b::T`.
fn ends_with(qualified: &str, name: &str) -> bool {
    if !name.contains("::") {
        return true;
    }
    let name = name.trim_start_matches("::");
    qualified
        .strip_suffix(name)
        .is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

fn named_type<'d>(unit: &UnitView<'d>, entry: &Entry<'d>) -> Option<NamedType> {
    let size_bytes = size_of(unit, entry)?;
    let mut name = type_name(unit, entry)?;
    if let Some((end, _)) = name.char_indices().nth(MOST_NAME_CHARS) {
        name.truncate(end);
        name.push('…');
    }
    Some(NamedType { name, size_bytes })
}

fn size_of<'d>(unit: &UnitView<'d>, entry: &Entry<'d>) -> Option<u64> {
    let bare = bare(unit, entry)?;
    let size = number(bare.attr(dw::DW_AT_byte_size));
    let pointer = || is_pointer(bare.tag()).then(|| unit.address_bytes());
    size.or_else(pointer).filter(|size| *size > 0)
}

/// Pointers come after the name, qualifiers before: `const Foo*`.
fn type_name<'d>(unit: &UnitView<'d>, entry: &Entry<'d>) -> Option<String> {
    let (mut before, mut behind) = (String::new(), String::new());
    let mut at = entry.clone();
    for _ in 0..MOST_STEPS {
        match at.tag() {
            dw::DW_TAG_pointer_type if unit.name(&at).is_none() => behind.insert(0, '*'),
            dw::DW_TAG_reference_type => behind.insert(0, '&'),
            dw::DW_TAG_rvalue_reference_type => behind.insert_str(0, "&&"),
            dw::DW_TAG_const_type if behind.is_empty() => {}
            dw::DW_TAG_const_type => before = "const ".to_owned(),
            tag if is_qualifier(tag) => {}
            _ => return Some(before + &qualified_name(unit, &at)? + &behind),
        }
        match unit.referred(&at, dw::DW_AT_type) {
            Some(next) => at = next,
            None if !behind.is_empty() => return Some(before + "void" + &behind),
            None => return None,
        }
    }
    None
}

fn qualified_name<'d>(unit: &UnitView<'d>, entry: &Entry<'d>) -> Option<String> {
    let name = unit.name(entry)?;
    let keyword = match entry.tag() {
        _ if !unit.is_c => "",
        dw::DW_TAG_structure_type => "struct ",
        dw::DW_TAG_union_type => "union ",
        dw::DW_TAG_enumeration_type => "enum ",
        _ => "",
    };
    let mut qualified = format!("{keyword}{name}");
    if unit.is_c {
        return Some(qualified);
    }
    for scope in unit.around(entry).take(MOST_STEPS) {
        let inline = scope.attr(dw::DW_AT_export_symbols).is_some();
        let names_types = !matches!(
            scope.tag(),
            dw::DW_TAG_subprogram | dw::DW_TAG_lexical_block
        );
        let name = unit.name(&scope);
        match name {
            _ if !names_types => break,
            Some(_) if inline => {}
            Some(name) => qualified = format!("{name}::{qualified}"),
            None if scope.tag() == dw::DW_TAG_namespace => {
                qualified = format!("(anonymous namespace)::{qualified}");
            }
            None => {}
        }
    }
    Some(qualified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use object::{Object, ObjectSection, ObjectSymbol};

    use crate::symbols::lines::Lines;

    #[test]
    fn a_qualified_name_ends_at_a_scope() {
        assert!(ends_with("a::b::T", "b::T"));
        assert!(ends_with("a::b::T", "::a::b::T"));
        assert!(!ends_with("a::ab::T", "b::T"));
        assert!(ends_with("a::T", "T"));
    }

    const SOURCE: &str = "
        struct item { long a[6]; };
        typedef struct { short s; struct { struct item *items; unsigned long *ids; }; } list_t;
        union either { int i; char c[12]; };
        static struct item **table;
        void make(list_t *list, union either *e) { (void)list; (void)e; table = 0; }
        list_t *made(void) { static list_t one; return &one; }
        void *any(void) { return table; }
        int main(void) { make(0, 0); return 0; }";

    /// A program with debug information, and the address of a function of it.
    fn program(directory: &Path, function: &str) -> (PathBuf, u64) {
        let (source, program) = (directory.join("t.c"), directory.join("t"));
        fs::write(&source, SOURCE).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-g", "-O0", "-o"]).arg(&program).arg(&source);
        assert!(gcc.status().expect("gcc is needed for this test").success());
        let bytes = fs::read(&program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let mut symbols = file.symbols();
        let symbol = symbols.find(|symbol| symbol.name() == Ok(function));
        let address = symbol.unwrap().address();
        (program, address)
    }

    fn place(address: u64) -> CodePlace {
        CodePlace {
            address,
            depth: 0,
            functions: 1,
        }
    }

    fn named(tag: Option<Tag>, name: &str, pointers: usize) -> TypeExpression {
        TypeExpression::Type {
            tag,
            name: name.to_owned(),
            pointers,
        }
    }

    fn value(variable: &str, steps: &[&str]) -> TypeExpression {
        let step = |step: &&str| match *step {
            "*" => Step::Element,
            member => Step::Member(member.to_owned()),
        };
        TypeExpression::Value {
            variable: variable.to_owned(),
            steps: steps.iter().map(step).collect(),
        }
    }

    fn expressions() -> Vec<(TypeExpression, Option<(&'static str, u64)>)> {
        vec![
            (
                named(Some(Tag::Struct), "item", 0),
                Some(("struct item", 48)),
            ),
            (
                named(Some(Tag::Struct), "item", 1),
                Some(("struct item*", 8)),
            ),
            (
                named(Some(Tag::Union), "either", 0),
                Some(("union either", 12)),
            ),
            (named(Some(Tag::Union), "item", 0), None),
            (named(None, "item", 0), None),
            (named(None, "list_t", 0), Some(("list_t", 24))),
            (
                named(None, "unsigned long", 0),
                Some(("long unsigned int", 8)),
            ),
            (value("list", &["*"]), Some(("list_t", 24))),
            (value("list", &["items", "*"]), Some(("struct item", 48))),
            (value("list", &["ids", "*"]), Some(("long unsigned int", 8))),
            (value("list", &["none", "*"]), None),
            (value("list", &["*", "*"]), None),
            (value("e", &["*"]), Some(("union either", 12))),
            (value("table", &["*", "*"]), Some(("struct item", 48))),
            (value("absent", &[]), None),
        ]
    }

    #[test]
    fn the_types_of_c_expressions() {
        let directory = tempfile::tempdir().unwrap();
        let (program, address) = program(directory.path(), "make");
        let dwarf = ModuleDwarf::open(&program).unwrap();
        let types = ModuleTypes(&dwarf);
        for (expression, expected) in expressions() {
            let found = types.of_expression(place(address + 1), &expression);
            let found = found.as_ref().map(|found| (&*found.name, found.size_bytes));
            assert_eq!(found, expected, "{expression:?}");
        }
        let elsewhere = types.of_expression(place(u64::MAX), &value("list", &["*"]));
        assert_eq!(elsewhere, None);
    }

    #[test]
    fn the_structure_that_a_function_returns_by_a_pointer() {
        let directory = tempfile::tempdir().unwrap();
        for (function, expected) in [
            ("made", Some(("list_t", 24))),
            ("any", None),
            ("make", None),
            ("main", None),
        ] {
            let (program, address) = program(directory.path(), function);
            let dwarf = ModuleDwarf::open(&program).unwrap();
            let types = ModuleTypes(&dwarf);
            let found = types.of_result(address);
            let found = found.as_ref().map(|found| (&*found.name, found.size_bytes));
            assert_eq!(found, expected, "{function}");
        }
    }

    #[test]
    fn damaged_debug_information_neither_panics_nor_loops() {
        let directory = tempfile::tempdir().unwrap();
        let (program, address) = program(directory.path(), "make");
        let good = fs::read(&program).unwrap();
        let file = object::File::parse(&*good).unwrap();
        let sections = file.sections().filter(|section| {
            let name = section.name().unwrap_or_default();
            [".debug_info", ".debug_abbrev", ".debug_aranges"].contains(&name)
        });
        let ranges: Vec<_> = sections
            .filter_map(|section| section.file_range())
            .collect();
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..400 {
            let mut bytes = good.clone();
            for _ in 0..1 + round % 8 {
                let (start, size) = ranges[random.usize(..ranges.len())];
                bytes[(start + random.u64(..size)) as usize] = random.u8(..);
            }
            let damaged = directory.path().join("damaged");
            fs::write(&damaged, &bytes).unwrap();
            let Some(lines) = Lines::open(damaged, None) else {
                continue;
            };
            lines.frames(address + 1);
            let types = ModuleTypes(lines.dwarf().unwrap());
            for (expression, _) in expressions() {
                types.of_expression(place(address + 1), &expression);
            }
            types.of_template(CodePlace {
                depth: 1,
                ..place(address + 1)
            });
            types.of_result(address);
        }
    }
}
