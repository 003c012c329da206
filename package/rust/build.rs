//! Compiles the allocator, with the malloc family under its prefix. Which files that takes is read in
//! CMakeLists.txt, which builds liblarder_prefixed.a of the same.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

/// As for the libraries that CMake builds (`larder_objects`).
const FLAGS: [&str; 15] = [
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-math-errno",
    "-ffunction-sections",
    "-fdata-sections",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-plt",
    "-fno-semantic-interposition",
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-free",
    "-fPIC",
    "-w",
];

const SOURCES: &str = "CMakeLists.txt";

fn main() {
    println!("cargo::rerun-if-changed=alloc");
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-changed={SOURCES}");
    refuse_other_targets();
    // Documentation links nothing; its builder need not have a compiler.
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if env::var_os("DOCS_RS").is_none() {
        compile();
    }
}

fn refuse_other_targets() {
    let of_target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let (system, processor, library) = (of_target("OS"), of_target("ARCH"), of_target("ENV"));
    if (&*system, &*processor, &*library) != ("linux", "x86_64", "gnu") {
        let target = env::var("TARGET").unwrap_or_default();
        fail(&format!(
            "larder-malloc is for Linux on x86-64 with glibc (x86_64-unknown-linux-gnu), not for {target}"
        ));
    }
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1);
}

fn compile() {
    let text = fs::read_to_string(SOURCES)
        .unwrap_or_else(|error| fail(&format!("larder-malloc: {SOURCES}: {error}")));
    let with_profile = env::var_os("CARGO_FEATURE_PROFILE").is_some();
    let mut sources = listed(&text, "LARDER_CORE");
    if with_profile {
        sources.extend(listed(&text, "LARDER_DIAGNOSTICS"));
    } else {
        sources.push("alloc/library/minimal.cc".into());
    }
    let entry = ["core/entry.cc", "compat/glibc_info.cc", "library/start.cc"];
    sources.extend(entry.map(|name| Path::new("alloc").join(name)));
    sources.extend(listed(&text, "LARDER_TABLES"));

    let mut build = cc::Build::new();
    for flag in FLAGS {
        build.flag(flag);
    }
    build
        .cpp(true)
        .std("c++17")
        .cpp_link_stdlib(None)
        .opt_level(2)
        .define("LARDER_PREFIXED", None)
        .includes(["alloc", "include"])
        .files(sources)
        // Else what starts it, which nothing calls, would be left out.
        .link_lib_modifier("+whole-archive");
    if let Err(error) = build.try_compile("larder_malloc") {
        fail(&format!(
            "larder-malloc: the allocator does not compile: {error}"
        ));
    }
}

/// The files of `larder_sources(VARIABLE FOLDER FILE...)`, which may stand several times.
fn listed(text: &str, variable: &str) -> Vec<PathBuf> {
    let calls = text.split("larder_sources(").skip(1);
    let files: Vec<_> = calls
        .filter_map(|call| call.split(')').next()?.trim().strip_prefix(variable))
        .flat_map(|words| {
            let mut words = words.split_whitespace();
            let folder = Path::new("alloc").join(words.next().unwrap_or_default());
            words.map(move |file| folder.join(file))
        })
        .collect();
    match files.iter().find(|file| !file.is_file()) {
        Some(missing) => fail(&format!("larder-malloc: there is no {}", missing.display())),
        None if files.is_empty() => fail(&format!("larder-malloc: {SOURCES} lists no {variable}")),
        None => files,
    }
}
