//! The machine of a measurement.

use std::ffi::CStr;
use std::fs;

use serde::{Deserialize, Serialize};

/// Above this load, other programs share the processors with the first round.
pub const QUIET_LOAD: f64 = 0.5;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_mib: u64,
    pub kernel: String,
    pub libc: String,
    /// The kernel's mode of transparent huge pages.
    pub huge_pages: String,
    /// The load average of the last minute.
    pub load_at_start: f64,
}

impl Machine {
    pub fn examine() -> Machine {
        let memory = line_of("/proc/meminfo", "MemTotal").unwrap_or_default();
        let memory_kib: u64 = memory
            .split_whitespace()
            .next()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0);
        let modes = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let modes = modes.unwrap_or_default();
        let mode = modes
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        Machine {
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            memory_mib: memory_kib / 1024,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            libc: format!("glibc {}", libc_version()),
            huge_pages: mode.map_or("unknown", |(mode, _)| mode).to_owned(),
            load_at_start: load(),
        }
    }

    /// Whether figures from both can be in one table.
    pub fn is_same(&self, other: &Machine) -> bool {
        let identity = |m: &Machine| {
            let text = [&m.processor, &m.kernel, &m.libc, &m.huge_pages].map(String::clone);
            (text, m.cores, m.memory_mib)
        };
        identity(self) == identity(other)
    }

    pub fn describe(&self) -> String {
        format!(
            "{} × {}, {:.0} GiB, Linux {}, {}, transparent huge pages: {}",
            self.cores,
            self.processor,
            self.memory_mib as f64 / 1024.0,
            self.kernel,
            self.libc,
            self.huge_pages
        )
    }
}

/// The processor's model.
pub fn processor() -> String {
    line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned())
}

fn line_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key))?;
    let (_, value) = line.split_once(':')?;
    Some(value.trim().to_owned())
}

pub fn libc_version() -> String {
    // SAFETY: returns a static string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Now, in UTC, as 2026-01-31T12:00:00Z.
pub fn date() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs()) as libc::time_t;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call; a zeroed tm is a valid one.
    let parts = unsafe {
        libc::gmtime_r(&seconds, parts.as_mut_ptr());
        parts.assume_init()
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_itself_whatever_its_load() {
        let machine = Machine::examine();
        let mut later = machine.clone();
        later.load_at_start += 3.0;
        assert!(machine.is_same(&later));
        assert!(machine.cores > 0 && machine.memory_mib > 0, "{machine:?}");
        later.kernel.push('x');
        assert!(!machine.is_same(&later));
    }

    #[test]
    fn the_date_has_its_form() {
        let date = date();
        assert_eq!(date.len(), 20, "{date}");
        assert!(date.starts_with("20") && date.ends_with('Z'), "{date}");
    }
}
