//! The processor time as text. Every name that comes from outside is escaped.

use std::io::{self, Write};

use larder_base::number::{counted, duration, grouped, percent, rounded};
use larder_base::style::{FAINT, FUNCTION, HEADING, WARNING};

use super::{Cpu, Row};

/// More missing time than this share is a warning.
const MUCH_MISSING_PERCENT: f64 = 5.0;

pub fn print(found: &Cpu, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let (all, recorder) = (found.all, found.recorder);
    let samples = all.samples + recorder.samples;
    if samples == 0 {
        return writeln!(
            out,
            "{HEADING}Processor time: no samples{HEADING:#} (larder record --cpu takes them)"
        );
    }
    let seconds = found.sampling.cpu_ns as f64 / 1e9;
    writeln!(
        out,
        "{HEADING}Processor time{HEADING:#} ({}; {}, {} a second of it; {} a second were asked for)",
        duration(found.sampling.cpu_ns),
        counted(samples, "sample"),
        rounded(samples as f64 / seconds.max(1e-9)),
        grouped(found.sampling.rate_hz),
    )?;
    if recorder.samples > 0 {
        writeln!(
            out,
            "{FAINT}{} of it ({:.1} %) in the recorder itself, left out below{FAINT:#}",
            duration(recorder.ns),
            percent(recorder.ns, recorder.ns + all.ns),
        )?;
    }
    print_missing(found, out)?;
    let rows = found.rows();
    let functions = counted(rows.len() as u64, "function");
    let scope = match rows.len() > top {
        true => format!("{} of {functions}", grouped(top as u64)),
        false => functions,
    };
    writeln!(
        out,
        "\n{HEADING}Functions by their own time{HEADING:#} ({scope})"
    )?;
    let [own, total, its_time, samples] = ["self", "total", "self time", "samples"];
    writeln!(
        out,
        "{FAINT}{own:>7} {total:>7} {its_time:>10} {samples:>9}  function{FAINT:#}"
    )?;
    for row in rows.iter().take(top) {
        print_row(row, all.ns, out)?;
    }
    Ok(())
}

/// A duration, but of nothing.
pub fn time(ns: u64) -> String {
    if ns == 0 {
        "0".to_owned()
    } else {
        duration(ns)
    }
}

fn print_row(row: &Row<'_>, all_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let module = row.function.module.as_ref();
    let module = module.map_or(String::new(), |module| format!("  in {}", module.name));
    writeln!(
        out,
        "{:>5.1} % {:>5.1} % {:>10} {:>9}  {FUNCTION}{}{FUNCTION:#}{FAINT}{module}{FAINT:#}",
        percent(row.own.ns, all_ns),
        percent(row.total.ns, all_ns),
        time(row.own.ns),
        grouped(row.own.samples),
        row.function.name,
    )
}

fn print_missing(found: &Cpu, out: &mut dyn Write) -> io::Result<()> {
    let missing = percent(found.missing_ns(), found.sampling.cpu_ns);
    if missing > MUCH_MISSING_PERCENT {
        writeln!(
            out,
            "{WARNING}warning: {missing:.1} % of the time is in no sample: before the program's start, in \
             threads that libc did not start, or while the program blocked the signal{WARNING:#}",
        )?;
    }
    let incomplete = percent(found.incomplete.ns, found.all.ns);
    if found.incomplete.samples > 0 {
        writeln!(
            out,
            "{FAINT}{} ({incomplete:.1} %) with a stack that does not reach its first function{FAINT:#}",
            counted(found.incomplete.samples, "sample"),
        )?;
    }
    Ok(())
}
