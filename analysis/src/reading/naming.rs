//! Sites, frames and stacks as text. Every name that comes from outside is escaped.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use larder_base::printable::escape;
use larder_base::style::{FAINT, WARNING};

use super::attribute::functions;
use super::plumbing::ModuleRole;
use super::resolve::{ChainFrame, Language, Resolver};
use super::sites::{Site, SiteStack};
use crate::symbols::SymbolProblem;

/// Callers shown in the one line of a site when all rankings are printed.
const CALLERS_IN_LINE: usize = 4;

pub fn site_name(site: &Site) -> String {
    match (&site.function, site.offset, &site.module) {
        (Some(function), Some(offset), _) if site.line.is_none() => {
            format!("{}+{offset:#x}", shown(function))
        }
        (Some(function), ..) => shown(function),
        (None, _, Some(module)) => format!("{}+{:#x}", module.name, site.address),
        (None, _, None) => "[no stack]".to_owned(),
    }
}

pub fn site_place(site: &Site) -> String {
    let named = site.function.is_some();
    match (&site.file, site.line, &site.module) {
        (Some(file), Some(line), _) => marked(format!("{}:{line}", escape(nearby(file))), named),
        (_, _, Some(module)) => marked(format!("in {}", module.path), named),
        _ => String::new(),
    }
}

/// Text for an address without a name.
fn marked(place: String, named: bool) -> String {
    match named {
        true => place,
        false => format!("{place}  [no name]"),
    }
}

/// The file relative to the current directory, if it is below it.
pub fn nearby(file: &str) -> &str {
    static CURRENT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let current = CURRENT.get_or_init(|| env::current_dir().ok());
    let below = current
        .as_ref()
        .and_then(|current| Path::new(file).strip_prefix(current).ok());
    below.and_then(Path::to_str).unwrap_or(file)
}

/// Functions of the C library from which `main` and every thread start.
const STARTS: &[&str] = &[
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "__libc_start_main",
    "start_thread",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "_start",
];

/// Whether this is one of them.
pub fn is_start(frame: &ChainFrame) -> bool {
    let function = frame.source.function.as_ref();
    function.is_some_and(|function| STARTS.contains(&&*function.name))
}

/// The frames up to `main` or a thread's function; of Python code, up to what the interpreter ran first.
pub fn without_start<'a, 'f>(frames: &'a [&'f ChainFrame]) -> &'a [&'f ChainFrame] {
    let frames = without_c_start(frames);
    let of = |language| move |frame: &&&ChainFrame| frame.module.language == language;
    if !frames.iter().any(|frame| of(Language::Python)(&frame)) {
        return frames;
    }
    let start = frames.iter().rev().take_while(of(Language::Interpreter));
    &frames[..frames.len() - start.count()]
}

/// Without the C library's symbol table the innermost of the starting functions has no name.
fn without_c_start<'a, 'f>(frames: &'a [&'f ChainFrame]) -> &'a [&'f ChainFrame] {
    let Some(mut end) = frames.iter().position(|frame| is_start(frame)) else {
        return frames;
    };
    while end > 0 && has_no_name(frames[end - 1]) {
        end -= 1;
    }
    if end == 0 { frames } else { &frames[..end] }
}

fn has_no_name(frame: &ChainFrame) -> bool {
    frame.module.role == ModuleRole::System && frame.source.function.is_none()
}

/// Whether this is the outermost frame of `without_start` whatever its callees are, if starting functions called it.
pub fn is_first(frame: &ChainFrame) -> bool {
    !is_interpreter(frame) && !is_start(frame) && !has_no_name(frame)
}

pub fn is_interpreter(frame: &ChainFrame) -> bool {
    frame.module.language == Language::Interpreter
}

pub fn shown(name: &str) -> String {
    escape(name).into_owned()
}

/// The function's name without an offset, if it has a name.
pub fn function_name(frame: &ChainFrame) -> String {
    match &frame.source.function {
        Some(function) => shown(&function.name),
        None => frame_name(frame),
    }
}

pub fn frame_name(frame: &ChainFrame) -> String {
    match &frame.source.function {
        Some(function) => match function.offset {
            Some(offset) if frame.source.line.is_none() => {
                format!("{}+{offset:#x}", shown(&function.name))
            }
            _ => shown(&function.name),
        },
        None => format!("{}+{:#x}", frame.module.name, frame.address),
    }
}

pub fn frame_place(frame: &ChainFrame) -> String {
    let place = match (&frame.source.file, frame.source.line) {
        (Some(file), Some(line)) => format!("{}:{line}", escape(nearby(file))),
        _ => format!("in {}", frame.module.name),
    };
    marked(place, frame.source.function.is_some())
}

const INDENT: &str = "        ";

/// One line a frame, innermost first, the site marked.
pub fn print_stack(stack: &SiteStack, out: &mut dyn Write) -> io::Result<()> {
    let frames: Vec<&ChainFrame> = functions(&stack.chain).collect();
    let inside = allocator_inside(&frames).min(stack.site.unwrap_or(0));
    for (index, frame) in without_start(&frames).iter().enumerate().skip(inside) {
        let mark = if Some(index) == stack.site {
            "→"
        } else {
            " "
        };
        let inlined = if frame.source.inlined {
            "  [inlined]"
        } else {
            ""
        };
        writeln!(
            out,
            "{INDENT}{FAINT}{mark} {}  {}{inlined}{FAINT:#}",
            frame_name(frame),
            frame_place(frame)
        )?;
    }
    Ok(())
}

/// The number of innermost frames that are the allocator's own, below the function that was called.
fn allocator_inside(frames: &[&ChainFrame]) -> usize {
    let family = frames.iter().take_while(|frame| frame.family);
    family.count().saturating_sub(1)
}

/// The functions that the site is inlined into, those between it and the allocator, and the next
/// callers.
pub fn print_stack_in_line(stack: &SiteStack, out: &mut dyn Write) -> io::Result<()> {
    let frames: Vec<&ChainFrame> = functions(&stack.chain).collect();
    let Some(site) = stack.site else {
        return Ok(());
    };
    let kept = without_start(&frames).len().max(site + 1);
    let frames = &frames[..kept];
    let through = entry_points(&frames[..site]);
    if !through.is_empty() {
        writeln!(
            out,
            "{INDENT}{FAINT}through {}{FAINT:#}",
            through.join(" → ")
        )?;
    }
    let inlined = inlined_into(frames, site);
    for frame in inlined {
        let (name, place) = (frame_name(frame), frame_place(frame));
        writeln!(out, "{INDENT}{FAINT}inlined into {name}  {place}{FAINT:#}")?;
    }
    let callers = &frames[site + 1 + inlined.len()..];
    let mut line = String::new();
    for frame in callers.iter().take(CALLERS_IN_LINE) {
        let place = match (&frame.source.file, frame.source.line) {
            (Some(file), Some(line)) => {
                let name = file.rsplit('/').next().unwrap_or(file);
                format!(" ({}:{line})", escape(name))
            }
            _ => String::new(),
        };
        let _ = write!(line, " ← {}{place}", frame_name(frame));
    }
    if callers.len() > CALLERS_IN_LINE {
        let _ = write!(line, " ← {} more", callers.len() - CALLERS_IN_LINE);
    }
    if line.is_empty() {
        Ok(())
    } else {
        writeln!(out, "{INDENT}{FAINT}{}{FAINT:#}", line.trim())
    }
}

/// The function by which each module of the plumbing below a site was entered, the site's callee first.
fn entry_points(plumbing: &[&ChainFrame]) -> Vec<String> {
    let mut names = Vec::new();
    let mut module = None;
    for frame in plumbing.iter().rev().filter(|frame| !frame.family) {
        if module != Some(&frame.module.path) {
            names.push(frame_name(frame));
        }
        module = Some(&frame.module.path);
    }
    names
}

/// The functions that the site is inlined into, the outermost last.
pub fn inlined_into<'a>(frames: &'a [&'a ChainFrame], site: usize) -> &'a [&'a ChainFrame] {
    let inlined = frames[site..]
        .iter()
        .take_while(|frame| frame.source.inlined)
        .count();
    let end = (site + 1 + inlined).min(frames.len());
    if inlined == 0 {
        &[]
    } else {
        &frames[site + 1..end]
    }
}

/// Prints at the end why functions or lines have no names, and the remedy; nothing if all have.
pub fn print_problems(resolver: &Resolver, out: &mut dyn Write) -> io::Result<()> {
    let mut without_lines = Vec::new();
    let mut heading = "\n";
    for found in resolver.problems() {
        let line = match found.problem {
            SymbolProblem::NoDebugInfo => {
                without_lines.push(found.path);
                continue;
            }
            SymbolProblem::NoFile => {
                format!("{}: not found, so its functions have no names", found.path)
            }
            SymbolProblem::OtherBuild {
                recorded,
                found: build,
            } => format!(
                "{}: replaced since the recording (build id {recorded} then, {build} now), so \
                 its symbols are not used",
                found.path
            ),
        };
        writeln!(out, "{heading}{WARNING}warning: {line}{WARNING:#}")?;
        heading = "";
    }
    if !without_lines.is_empty() {
        writeln!(
            out,
            "{heading}{FAINT}no debug information, so no source lines, in: {}\n\
             compile with -g, or name a debuginfod server that has it: --debuginfod URL{FAINT:#}",
            without_lines.join(", ")
        )?;
    }
    Ok(())
}
