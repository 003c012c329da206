//! The kernel's settings and this process's limits that affect running and recording.

use std::fs;
use std::path::Path;

use larder_analysis::symbols::debuginfod;
use larder_base::printable;
use rustix::process::{Resource, getrlimit};

use super::{Finding, Health};

/// An address-space limit below this leaves too little for the program itself.
const SMALL_ADDRESS_SPACE: u64 = 256 << 20;
/// The kernel's default.
const DEFAULT_MAP_COUNT: u64 = 65_530;
/// The trace of a long run can fill this space.
const LITTLE_DISK: u64 = 1 << 30;

pub fn findings() -> Vec<Finding> {
    let mut findings = vec![trace_place(), seccomp(), ptrace_scope(), huge_pages()];
    findings.push(overcommit());
    findings.push(map_count());
    findings.push(address_space());
    findings.push(file_size());
    findings.push(rseq());
    findings.push(hardware_counters());
    findings.push(debug_information());
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn trace_place() -> Finding {
    const CHECK: &str = "trace directory";
    let here = std::env::current_dir().unwrap_or_else(|_| ".".into());
    let name = printable::name(&here);
    let remedy = "name a writable place with `larder record -o DIR`";
    if rustix::fs::access(&here, rustix::fs::Access::WRITE_OK).is_err() {
        let found = format!("{name} is not writable");
        return Finding::new(CHECK, Health::Warning, found, remedy);
    }
    let Ok(space) = rustix::fs::statvfs(&here) else {
        return Finding::ok(CHECK, name);
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let found = format!("{name}, {} MiB free", free >> 20);
    if free < LITTLE_DISK {
        return Finding::new(CHECK, Health::Warning, found, remedy);
    }
    Finding::ok(CHECK, found)
}

fn status_field(name: &str) -> Option<u64> {
    let status = read("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}

fn seccomp() -> Finding {
    const CHECK: &str = "seccomp";
    match status_field("Seccomp") {
        Some(0) => Finding::ok(CHECK, "no filter on this process"),
        Some(1) => Finding::new(
            CHECK,
            Health::Missing,
            "strict mode: nearly every system call ends the process",
            "start from a process that is not in strict mode",
        ),
        Some(_) => Finding::new(
            CHECK,
            Health::Note,
            "a filter is active (a container or sandbox); the trial recording shows whether it \
             matters",
            "if recording fails, allow mmap, munmap, mremap, madvise, futex, openat, fallocate",
        ),
        None => Finding::new(
            CHECK,
            Health::Warning,
            "/proc/self/status is unreadable",
            "mount /proc",
        ),
    }
}

fn ptrace_scope() -> Finding {
    const CHECK: &str = "ptrace";
    const PATH: &str = "/proc/sys/kernel/yama/ptrace_scope";
    let meaning = match read(PATH).as_deref() {
        None | Some("0") => {
            return Finding::ok(CHECK, "not restricted; run and record do not need it");
        }
        Some("1") => "limited to children",
        Some("2") => "limited to administrators",
        Some(_) => "switched off",
    };
    Finding::new(
        CHECK,
        Health::Note,
        format!("{meaning}; run and record do not need it"),
        "",
    )
}

fn huge_pages() -> Finding {
    const CHECK: &str = "huge pages";
    let Some(modes) = read("/sys/kernel/mm/transparent_hugepage/enabled") else {
        return Finding::new(
            CHECK,
            Health::Note,
            "the kernel has no transparent huge pages",
            "",
        );
    };
    let mode = modes
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match mode.map(|(mode, _)| mode) {
        Some("always") => Finding::new(
            CHECK,
            Health::Warning,
            "always: resident memory may be far above what is in use",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(mode) => Finding::ok(CHECK, mode.to_owned()),
        None => Finding::new(CHECK, Health::Note, format!("mode unknown: {modes}"), ""),
    }
}

fn overcommit() -> Finding {
    const CHECK: &str = "overcommit";
    match read("/proc/sys/vm/overcommit_memory").as_deref() {
        Some("0") => Finding::ok(CHECK, "heuristic"),
        Some("1") => Finding::ok(CHECK, "always"),
        Some("2") => Finding::new(
            CHECK,
            Health::Warning,
            "strict: mappings are charged in full when they are made",
            "if allocations fail: sysctl vm.overcommit_memory=0",
        ),
        _ => Finding::new(CHECK, Health::Note, "unknown: /proc/sys is unreadable", ""),
    }
}

fn map_count() -> Finding {
    const CHECK: &str = "max_map_count";
    match read("/proc/sys/vm/max_map_count").and_then(|text| text.parse::<u64>().ok()) {
        Some(count) if count < DEFAULT_MAP_COUNT => Finding::new(
            CHECK,
            Health::Warning,
            format!("{count}, less than the kernel's default"),
            format!("sysctl vm.max_map_count={DEFAULT_MAP_COUNT}"),
        ),
        Some(count) => Finding::ok(CHECK, count.to_string()),
        None => Finding::new(CHECK, Health::Note, "unknown: /proc/sys is unreadable", ""),
    }
}

fn address_space() -> Finding {
    const CHECK: &str = "RLIMIT_AS";
    match getrlimit(Resource::As).current {
        None => Finding::ok(CHECK, "unlimited"),
        Some(bytes) if bytes < SMALL_ADDRESS_SPACE => Finding::new(
            CHECK,
            Health::Warning,
            format!(
                "{} MiB of address space, the recorder's buffers included",
                bytes >> 20
            ),
            "ulimit -v unlimited",
        ),
        Some(bytes) => Finding::ok(CHECK, format!("{} MiB", bytes >> 20)),
    }
}

fn file_size() -> Finding {
    const CHECK: &str = "RLIMIT_FSIZE";
    match getrlimit(Resource::Fsize).current {
        None => Finding::ok(CHECK, "unlimited"),
        Some(bytes) => Finding::new(
            CHECK,
            Health::Warning,
            format!(
                "a trace file ends at {} MiB; recording stops there",
                bytes >> 20
            ),
            "ulimit -f unlimited",
        ),
    }
}

/// Whether glibc registered the area that has the current CPU without a system call.
fn rseq() -> Finding {
    const CHECK: &str = "rseq";
    // SAFETY: looks up a symbol by name in what is loaded.
    let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
    // SAFETY: glibc defines `__rseq_size` as a constant unsigned int.
    let registered = !size.is_null() && unsafe { *size.cast::<u32>() } > 0;
    if registered {
        return Finding::ok(CHECK, "registered by the C library");
    }
    Finding::new(
        CHECK,
        Health::Note,
        "not registered: threads beyond the bound on heaps ask the kernel for their CPU",
        "use glibc 2.35 or later, without glibc.pthread.rseq=0 in GLIBC_TUNABLES",
    )
}

fn hardware_counters() -> Finding {
    const CHECK: &str = "perf counters";
    if Path::new("/sys/bus/event_source/devices/cpu").exists()
        || Path::new("/sys/bus/event_source/devices/armv8_pmuv3_0").exists()
    {
        let paranoid = read("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        let user = paranoid.parse::<i32>().is_ok_and(|level| level <= 2);
        if user || rustix::process::geteuid().is_root() {
            return Finding::ok(CHECK, "hardware counters can be read");
        }
        return Finding::new(
            CHECK,
            Health::Note,
            format!(
                "closed to users (perf_event_paranoid is {paranoid}); run and record need none"
            ),
            "sysctl kernel.perf_event_paranoid=2",
        );
    }
    Finding::new(
        CHECK,
        Health::Note,
        "this machine shows none (a virtual machine?); run and record need none",
        "",
    )
}

fn debug_information() -> Finding {
    const CHECK: &str = "debug files";
    let installed = Path::new("/usr/lib/debug/.build-id").is_dir();
    let urls = std::env::var_os("DEBUGINFOD_URLS").filter(|urls| !urls.is_empty());
    match (installed, urls) {
        (true, _) => Finding::ok(CHECK, "separate debug files in /usr/lib/debug"),
        (false, Some(_)) if debuginfod::is_installed() => Finding::ok(
            CHECK,
            "none in /usr/lib/debug; the servers in DEBUGINFOD_URLS are asked",
        ),
        (false, Some(_)) => Finding::new(
            CHECK,
            Health::Note,
            "none in /usr/lib/debug, and debuginfod-find, which asks the servers in DEBUGINFOD_URLS, is missing",
            "apt install debuginfod, or your system's package with elfutils' client",
        ),
        (false, None) => Finding::new(
            CHECK,
            Health::Note,
            "none in /usr/lib/debug: stripped libraries show functions, not lines",
            "set DEBUGINFOD_URLS, or install the -dbgsym packages of the libraries whose lines are wanted",
        ),
    }
}
