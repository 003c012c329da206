//! The instruments end to end, on a few pairs: each starts, measures, and reports.
//!
//! Their programs are searched for in `LARDER_LIBEXEC` (default: the staged tree), then in the build tree
//! of `make test`; if they are in neither, the tests fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{built_libraries, code, larder, output};

const PROGRAM: &str = "bench_stacks";

/// The folder whose `bench` holds the programs.
fn libexec() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let given = std::env::var_os("LARDER_LIBEXEC").map(PathBuf::from);
    let places = given
        .into_iter()
        .chain(["out/libexec/larder", "build/release"].map(|p| root.join(p)));
    let mut there = places.filter(|place| place.join("bench").join(PROGRAM).is_file());
    there.next().unwrap_or_else(|| {
        panic!("{PROGRAM} is in neither out/ nor build/release/: build the target bench_workloads")
    })
}

fn instrument(words: &[&str]) -> Command {
    let mut command = larder();
    command.env("LARDER_LIBEXEC", libexec()).args(words);
    command
}

/// The JSON that it prints.
fn figures(words: &[&str]) -> serde_json::Value {
    figures_of(&mut instrument(words))
}

fn figures_of(command: &mut Command) -> serde_json::Value {
    let done = output(command.arg("--json"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(code(&done), 0, "{command:?}: {said}");
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    report["data"].clone()
}

fn first(data: &serde_json::Value, allocator: &str, name: &str) -> f64 {
    let list = data["figures"].as_array().expect("figures");
    let found = list.iter().find(|figure| figure["allocator"] == allocator);
    let found = found.unwrap_or_else(|| panic!("{allocator} is not in {data}"));
    found[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} is no number in {found}"))
}

#[test]
fn the_sweep_writes_tables_data_and_plots() {
    let out = tempfile::tempdir().expect("a folder");
    let words = [
        "sweep",
        "--allocators",
        "larder,glibc",
        "--sizes",
        "50,5000",
        "--rounds",
        "1",
        "--scale",
        "0.01",
    ];
    let done = output(instrument(&words).arg("--out").arg(out.path()));
    assert_eq!(code(&done), 0, "{}", String::from_utf8_lossy(&done.stderr));
    // No progress is shown without a terminal.
    let files = "sweep.md, sweep.json, sweep-untouched.svg, sweep-touched.svg";
    let said = format!("larder: {}: {files} written\n", out.path().display());
    assert_eq!(String::from_utf8_lossy(&done.stderr), said);
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(
        text.contains("ns a pair, untouched") && text.contains("5 kB / 50 B"),
        "{text}"
    );
    for name in [
        "sweep.md",
        "sweep.json",
        "sweep-untouched.svg",
        "sweep-touched.svg",
    ] {
        assert!(
            out.path()
                .join(name)
                .metadata()
                .is_ok_and(|file| file.len() > 100),
            "{name}"
        );
    }
}

#[test]
fn starting_up_takes_time_and_memory() {
    let words = [
        "startup",
        "--allocators",
        "larder,glibc",
        "--rounds",
        "1",
        "--spawns",
        "3",
    ];
    let data = figures(&words);
    for allocator in ["larder", "glibc"] {
        assert!(first(&data, allocator, "median_us") > 0.0);
    }
    let resident = |allocator| first(&data, allocator, "median_resident_kib");
    // At least its own code and tables, and not a slab for every class.
    let more = resident("larder") - resident("glibc");
    assert!((16.0..1024.0).contains(&more), "{more} KiB");
}

#[test]
fn arrays_alias_without_padding_and_do_not_with_a_line_of_it() {
    let words = |padding| {
        [
            "alias",
            "--allocators",
            "glibc,larder",
            "--padding",
            padding,
            "--iterations",
            "1",
            "--rounds",
            "1",
        ]
    };
    let plain = figures(&words("0"));
    assert!(first(&plain, "glibc", "median_mflops") > 0.0);
    // glibc puts the header of each mapping in front: all 91 pairs are at the same offset.
    assert_eq!(first(&plain, "glibc", "alias_pairs"), 91.0);
    assert_eq!(first(&figures(&words("64")), "glibc", "alias_pairs"), 0.0);
    assert!(
        first(&plain, "larder", "alias_pairs") < 10.0,
        "Larder colours blocks of whole pages"
    );
}

#[test]
fn the_grid_has_a_rate_a_cell() {
    let words = [
        "grid",
        "--allocators",
        "larder",
        "--threads",
        "1,2",
        "--sizes",
        "64",
        "--rounds",
        "1",
        "--scale",
        "0.02",
    ];
    let data = figures(&words);
    assert_eq!(data["figures"].as_array().map(Vec::len), Some(2));
    assert!(first(&data, "larder", "median_operations_per_cpu_second") > 0.0);
}

#[test]
fn the_page_map_is_timed_beside_hash_maps() {
    let data = figures(&[
        "page-map",
        "--threads",
        "1",
        "--rounds",
        "1",
        "--scale",
        "0.01",
    ]);
    let list = data["figures"].as_array().expect("figures");
    let names: Vec<_> = list.iter().map(|figure| &figure["structure"]).collect();
    let wanted = ["radix1", "radix2", "radix3", "hash_mutex", "hash_shared"];
    assert_eq!(names, wanted);
    for figure in list {
        for time in ["median_latency_ns", "median_throughput_ns"] {
            assert!(figure[time].as_f64().is_some_and(|ns| ns > 0.0), "{figure}");
        }
    }
}

#[test]
fn instructions_of_larder_lie_between_the_floor_and_glibc() {
    let words = [
        "instructions",
        "--allocators",
        "larder,glibc",
        "--sizes",
        "16",
        "--pairs",
        "1000",
    ];
    let data = figures(&words);
    let floor = data["floors"]["list"].as_f64().expect("the floor");
    let (larder, glibc) = (
        first(&data, "larder", "instructions"),
        first(&data, "glibc", "instructions"),
    );
    assert!(floor >= 4.0 && floor < larder && larder < glibc, "{data}");
    // What a process does beside its pairs may fall into one of the runs: tens of instructions of a thousand pairs.
    let linked = first(&data, "larder, static", "instructions");
    assert!(linked < larder + 0.5, "{data}");
}

#[test]
fn local_pairs_need_no_atomic_operation_and_remote_frees_do() {
    let words = [
        "counts",
        "--allocators",
        "larder",
        "--patterns",
        "pairs,remote",
        "--threads",
        "2",
        "--operations",
        "20000",
    ];
    let data = figures(&words);
    let of = |pattern: &str, count: &str| {
        let list = data["per_million_pairs"].as_array().expect("counts");
        let found = list.iter().find(|figure| figure["pattern"] == pattern);
        found
            .and_then(|figure| figure[count].as_f64())
            .unwrap_or_else(|| panic!("{pattern} {count}: {data}"))
    };
    // A rare switch between threads may fall into the difference of the two runs.
    assert!(of("pairs", "atomics") < 1000.0, "{data}");
    assert!(of("remote", "atomics") > 1000.0, "{data}");
    assert!(of("remote", "locks") > 0.0, "{data}");
    assert!(of("remote", "slow_paths") > 1000.0, "{data}");
    assert!(
        data["slow_paths"]
            .as_array()
            .is_some_and(|names| names.len() == 4),
        "{data}"
    );
}

#[test]
fn a_library_without_malloc_is_no_peer() {
    let words = [
        "sweep",
        "--allocators",
        "fake",
        "--peer",
        "fake=/lib/x86_64-linux-gnu/libm.so.6",
        "--sizes",
        "50",
    ];
    let done = output(&mut instrument(&words));
    assert_eq!(code(&done), 125);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        said.contains("takes malloc from") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn missing_programs_are_reported() {
    let empty = tempfile::tempdir().expect("a folder");
    let mut command = larder();
    command.env("LARDER_LIBEXEC", empty.path()).arg("page-map");
    let done = output(&mut command);
    assert_eq!(code(&done), 125);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        said.contains("bench_page_map is not in") && said.contains("make peers"),
        "{said}"
    );
}

#[test]
fn recording_reports_its_cost() {
    let data = figures(&["recording", "--rounds", "1", "--scale", "0.05"]);
    let list = data["figures"].as_array().expect("figures");
    // Some are left out where they are not installed.
    assert!((4..=7).contains(&list.len()), "{data}");
    for figure in list {
        assert!(figure["events"].as_u64() > Some(1000), "{figure}");
        let bytes = figure["bytes_on_disk"].as_array().expect("bytes");
        assert_eq!(bytes[0], 0, "{figure}");
        assert!(
            bytes[1..].iter().all(|bytes| bytes.as_u64() > Some(0)),
            "{figure}"
        );
    }
}

/// The names of the instrument's table.
const WALKED: [&str; 13] = [
    "deep templates",
    "exceptions",
    "frames",
    "tail calls",
    "signal handlers",
    "coroutines",
    "plugins",
    "threads",
    "z3",
    "cc1plus",
    "python",
    "gdb",
    "larder",
];

/// The comparison's result for each program, after a check that no stack is wrong.
fn walked(words: &[&str], unwinder: &str) -> Vec<(String, u64)> {
    let libraries = built_libraries();
    let mut stacks = instrument(&[&["stacks"], words].concat());
    let data = figures_of(stacks.env("LARDER_LIB", libraries.path()));
    let list = data["figures"].as_array().expect("figures");
    let each = list.iter().map(|one| {
        // Where a signal interrupted the recorder itself the other may give up before it does.
        let mut examples = one["examples"].as_array().expect("examples").iter();
        let wrong = examples.find(|example| example["verdict"] != "longer");
        assert_eq!(wrong, None, "{}", one["program"]);
        let counts = &one[unwinder];
        let (wrong, cut) = (&counts["false"], &counts["truncated"]);
        assert_eq!((wrong, cut), (&0.into(), &0.into()), "{}", one["program"]);
        let name = one["program"].as_str().expect("a name").to_owned();
        (name, counts["samples"].as_u64().expect("a count"))
    });
    each.collect()
}

#[test]
fn recorded_stacks_are_those_of_libgcc() {
    let found = walked(&["--scale", "0.5", "--gdb", "0"], "libgcc");
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, WALKED);
    assert!(found.iter().all(|(_, samples)| *samples > 100), "{found:?}");
    let all: u64 = found.iter().map(|(_, samples)| samples).sum();
    assert!(all >= 10_000, "{found:?}");
}

#[test]
fn recorded_stacks_are_those_of_gdb() {
    let programs = "exceptions,frames,signal handlers,coroutines,plugins";
    let found = walked(&["--gdb", "60", "--programs", programs], "gdb");
    assert_eq!(found.len(), 5);
    // Of 60; on an idle machine, few of the signals interrupt a call.
    assert!(found.iter().all(|(_, samples)| *samples > 10), "{found:?}");
}

#[test]
fn unknown_programs_are_refused() {
    let done = output(instrument(&["stacks", "--programs", "z3,no\x1b[31msuch"]).arg("--json"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(code(&done), 125, "{said}");
    assert!(
        said.contains("--programs no\\x1b[31msuch: give names of deep templates"),
        "{said}"
    );
}
