//! One program: can it be run and reached, which allocator has it, and which of its files have debug
//! information?

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_analysis::symbols::{DebugInfo, DebugRoots, ElfFile};
use larder_base::libraries::{Libc, Library};
use larder_base::printable;
use larder_base::target::{Target, program_loader};

use super::{Finding, Health};

/// Functions of allocators that a program may have linked in; with the library's name.
const BUILT_IN_ALLOCATORS: &[(&str, &str)] = &[
    ("malloc", "a malloc of its own"),
    ("je_malloc", "jemalloc"),
    ("_rjem_malloc", "jemalloc"),
    ("mi_malloc", "mimalloc"),
    ("tc_malloc", "tcmalloc"),
    ("sn_malloc", "snmalloc"),
];

pub fn findings(command: &OsStr) -> Vec<Finding> {
    let target = match Target::resolve(command) {
        Ok(target) => target,
        Err(error) => return vec![Finding::from_failure("command", error.into())],
    };
    if target.libc == Libc::Musl
        && let Err(missing) = target.libraries().find(Library::Recorder)
    {
        return vec![Finding::from_failure("command", missing.into())];
    }
    let mut findings = vec![reachable(&target)];
    let Some(program) = ElfFile::open(&target.program) else {
        findings.push(Finding::new(
            "program",
            Health::Warning,
            format!("{} cannot be read", printable::name(&target.program)),
            "its symbols will be missing: make it readable",
        ));
        return findings;
    };
    findings.extend(built_in_allocator(&program));
    let roots = DebugRoots::from_environment();
    findings.push(program_debug_info(&target.program, &roots));
    findings.push(library_debug_info(&target.program, &roots));
    findings
}

fn reachable(target: &Target) -> Finding {
    let path = printable::name(&target.path);
    if target.path == target.program {
        return Finding::ok(
            "command",
            format!("{path}: dynamically linked, can be preloaded"),
        );
    }
    let program = printable::name(&target.program);
    Finding::ok(
        "command",
        format!("{path}: a script, run by {program}, which can be preloaded"),
    )
}

/// The program's own symbols come before preloaded ones.
fn built_in_allocator(program: &ElfFile) -> Option<Finding> {
    let (symbol, name) = BUILT_IN_ALLOCATORS
        .iter()
        .find(|(symbol, _)| program.defines_function(symbol))?;
    Some(Finding::new(
        "own allocator",
        Health::Warning,
        format!("has {name} linked in ({symbol}): its calls do not reach a preloaded allocator"),
        "build the program without it to run or record it on Larder",
    ))
}

fn program_debug_info(program: &Path, roots: &DebugRoots) -> Finding {
    const CHECK: &str = "debug information";
    let name = printable::name(program);
    match DebugInfo::of(program, roots) {
        DebugInfo::Own => Finding::ok(CHECK, format!("{name} has debug information")),
        DebugInfo::Separate(path) => {
            Finding::ok(CHECK, format!("{name}: in {}", printable::name(path)))
        }
        DebugInfo::SymbolsOnly => Finding::new(
            CHECK,
            Health::Warning,
            format!("{name} has symbols but no lines"),
            "build it with -g (Rust: debug = \"line-tables-only\")",
        ),
        DebugInfo::None => Finding::new(
            CHECK,
            Health::Warning,
            format!("{name} is stripped: sites will be bare addresses"),
            "build it with -g, or install its -dbgsym package",
        ),
    }
}

fn library_debug_info(program: &Path, roots: &DebugRoots) -> Finding {
    const CHECK: &str = "its libraries";
    let libraries = match loaded_libraries(program) {
        Ok(libraries) => libraries,
        Err(missing) => {
            return Finding::new(
                CHECK,
                Health::Missing,
                missing,
                "install what is missing, or set LD_LIBRARY_PATH",
            );
        }
    };
    let without: Vec<String> = libraries
        .iter()
        .filter(|path| {
            matches!(
                DebugInfo::of(path, roots),
                DebugInfo::SymbolsOnly | DebugInfo::None
            )
        })
        .map(|path| printable::name(path.file_name().unwrap_or_default()))
        .collect();
    if without.is_empty() {
        return Finding::ok(CHECK, format!("{} with debug information", libraries.len()));
    }
    Finding::new(
        CHECK,
        Health::Note,
        format!(
            "{} of {} without lines: {}",
            without.len(),
            libraries.len(),
            without.join(", ")
        ),
        "install their -dbgsym packages where lines are wanted",
    )
}

/// The libraries that the loader lists, or the one that it does not find.
fn loaded_libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let Some(loader) = program_loader(program) else {
        return Ok(Vec::new());
    };
    let output = Command::new(loader)
        .arg("--list")
        .arg(program)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return Ok(Vec::new());
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.ends_with("=> not found")) {
        let name = line.trim().trim_end_matches("=> not found").trim();
        return Err(format!(
            "{} is not found by the loader",
            printable::escape(name)
        ));
    }
    Ok(parse_list(&text))
}

fn parse_list(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let (before, _) = line.rsplit_once(" (0x")?;
            let path = before
                .rsplit_once("=> ")
                .map_or(before, |(_, path)| path)
                .trim();
            path.starts_with('/').then(|| PathBuf::from(path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x y/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x y/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_list(text), expected);
    }

    #[test]
    fn a_program_that_is_not_there_keeps_its_exit_code() {
        let findings = findings(OsStr::new("/no/such/program"));
        assert_eq!(findings.len(), 1);
        assert_eq!(
            findings[0].status,
            Some(larder_base::failure::ExitStatus::NotFound)
        );
    }

    #[test]
    fn this_program_has_debug_information_and_libraries() {
        let own = std::env::current_exe().unwrap();
        let findings = findings(own.as_os_str());
        assert!(
            findings
                .iter()
                .all(|finding| finding.health < Health::Warning),
            "{findings:?}"
        );
    }
}
