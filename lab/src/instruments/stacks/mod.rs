//! `larder lab stacks`: checks recorded stacks. For a share of the allocations of several programs, the
//! stack in the trace is compared, frame by frame, with the one that libgcc's unwinder found in the
//! process at the same call, and for some with gdb's.

mod compare;
mod samples;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use larder_base::failure::Result;
use larder_base::installed;
use larder_base::libraries::{Library, LibraryPath};
use larder_base::machine::Machine;
use larder_base::measured::scratch_failure;
use larder_base::number::grouped;
use larder_base::preload::TRACE_DIRECTORY_VARIABLE;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::printable;
use larder_trace::Module;
use serde_json::{Value, json};

use self::compare::{Example, Tally};
use super::output::{Output, Report, Table};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::recorded;
use super::traces::{self, Counted};
use crate::error::{self, LabError};

const PROGRAM: &str = "bench_stacks";
const PARSER: &str = "bench_recorded";
const SAMPLER: &str = "libbench_sampler.so";
const RUN_LIMIT_SECONDS: u64 = 120;
const DEBUGGER: &str = include_str!("debugger.py");

#[derive(Debug)]
pub struct StacksPlan {
    /// Seed of the samples.
    pub scale: f64,
    /// Samples of each program that gdb walks, too; 0: none.
    pub debugged: u32,
    /// Only these programs, by the names of the table.
    pub programs: Option<Vec<String>>,
    pub output: Output,
}

/// A program, and the share of its allocations whose stacks are compared.
#[derive(Debug)]
struct Case {
    name: &'static str,
    words: Vec<String>,
    /// One in this many.
    every: u32,
}

/// The results of a program's runs.
struct Compared {
    name: &'static str,
    libgcc: Tally,
    gdb: Tally,
    /// Counts of the first run.
    counted: Counted,
    /// Frames of the examples, named while the trace exists.
    examples: Vec<Value>,
}

pub fn run(plan: &StacksPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    let needed = [PROGRAM, PARSER, SAMPLER];
    let programs = Programs::find(&needed, RUN_LIMIT_SECONDS)?;
    let cases = chosen(plan, cases(&programs)?)?;
    if plan.debugged > 0 {
        programs::require("gdb", "gdb")?;
    }
    let progress = Progress::new(cases.len());
    let mut compared = Vec::new();
    for case in &cases {
        progress.begin(case.name);
        compared.push(compare(plan, &programs, case)?);
        progress.end_step();
    }
    drop(progress);
    report(plan, &compared).publish(&plan.output, &machine)
}

fn cases(programs: &Programs) -> Result<Vec<Case>> {
    let folder = programs.scratch_folder()?;
    let input = |name: &str, text: &str| -> Result<String> {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| scratch_failure("an input", error))?;
        Ok(path.display().to_string())
    };
    let own = |kind: &str, rounds: &str| [PROGRAM, kind, rounds].map(str::to_owned).to_vec();
    let case = |name, words, every| Case { name, words, every };
    let z3 = programs::require("z3", "z3")?.display().to_string();
    let gdb = programs::require("gdb", "gdb")?.display().to_string();
    let compiler = recorded::compiler_itself().ok_or_else(|| programs::missing("g++", "g++"))?;
    let headers = recorded::answer("g++", &["-print-multiarch"]).unwrap_or_default();
    let python = recorded::interpreter_itself();
    let python = python.ok_or_else(|| programs::missing("python3", "python3"))?;
    let python = python.display().to_string();
    let tool = installed::tool()?.display().to_string();
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    let debugged = programs.path(PROGRAM).display().to_string();
    let problem = input("pigeons.smt2", &recorded::pigeons(4))?;
    let source = input("source.cc", SOURCE)?;
    let script = input("script.py", SCRIPT)?;
    let parser = words(&[PARSER, "parser", "4000"]);
    let gdb_words = words(&[
        &gdb,
        "-nx",
        "-batch",
        "-ex",
        "info types a",
        "-ex",
        "info line main",
        &debugged,
    ]);
    Ok(vec![
        case("deep templates", parser, 500),
        case("exceptions", own("exceptions", "300"), 40),
        case("frames", own("frames", "300"), 40),
        case("tail calls", own("tails", "700"), 20),
        case("signal handlers", own("signals", "20"), 5),
        case("coroutines", own("contexts", "300"), 20),
        case("plugins", own("plugins", "100"), 4),
        case("threads", own("threads", "100"), 25),
        case("z3", words(&[&z3, &problem]), 200),
        case(
            "cc1plus",
            words(&[
                &compiler,
                "-quiet",
                "-imultiarch",
                &headers,
                "-O2",
                "-o",
                "/dev/null",
                &source,
            ]),
            300,
        ),
        case("python", words(&[&python, &script]), 40),
        case("gdb", gdb_words, 300),
        case("larder", words(&[&tool, "report", "--help"]), 3),
    ])
}

const SOURCE: &str = "#include <map>\n#include <regex>\n#include <string>\n\
    std::map<std::string, std::regex> patterns;\n\
    bool known(const std::string& text) {\n\
      for (auto& [name, pattern] : patterns) if (std::regex_match(text, pattern)) return true;\n\
      return false;\n}\n";

const SCRIPT: &str = "import ast, collections, decimal, json, re, sqlite3, threading\n\
    def depth(n): return [n, depth(n - 1)] if n else [str(n) * 600]\n\
    def work():\n\
    \x20 for _ in range(30):\n\
    \x20   json.loads(json.dumps(depth(40)))\n\
    \x20   ast.parse('f(' * 20 + 'x' * 600 + ')' * 20)\n\
    \x20   re.compile('(a|b)*' * 20 + str(_) * 600)\n\
    \x20   sorted([bytes(600) for _ in range(40)], key=lambda b: b + b)\n\
    threads = [threading.Thread(target=work) for _ in range(3)]\n\
    [t.start() for t in threads]\n\
    [t.join() for t in threads]\n\
    db = sqlite3.connect(':memory:')\n\
    db.execute('create table t (a)')\n\
    [db.execute('insert into t values (?)', ('x' * 700,)) for _ in range(2000)]\n\
    list(db.execute('select * from t order by a'))\n";

fn chosen(plan: &StacksPlan, cases: Vec<Case>) -> error::Result<Vec<Case>> {
    let Some(names) = &plan.programs else {
        return Ok(cases);
    };
    let known: Vec<&str> = cases.iter().map(|case| case.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(LabError::usage(format!(
            "--programs {}: give names of {}",
            printable::escape(unknown),
            known.join(", ")
        )));
    }
    let wanted = |case: &Case| names.iter().any(|name| name == case.name);
    Ok(cases.into_iter().filter(wanted).collect())
}

fn compare(plan: &StacksPlan, programs: &Programs, case: &Case) -> Result<Compared> {
    let folder = programs.scratch_folder()?;
    let every = (f64::from(case.every) / plan.scale).round().max(1.0);
    let first = Sampling::of(programs, case, folder.join("plain"), every)?;
    programs.printed_by(&first.launch(case, None))?;
    let libgcc = first.tally(&first.samples)?;
    let mut compared = Compared {
        name: case.name,
        counted: Counted::of(&first.trace)?,
        examples: named("libgcc", &libgcc, &first.trace)?,
        libgcc,
        gdb: Tally::default(),
    };
    if plan.debugged > 0 {
        let second = Sampling::of(programs, case, folder.join("gdb"), every)?;
        let script = second.folder.join("debugger.py");
        fs::write(&script, DEBUGGER).map_err(|error| scratch_failure("a script", error))?;
        programs.printed_by(&second.launch(case, Some((&script, plan.debugged))))?;
        compared.gdb = second.tally(&second.debugged)?;
        let examples = named("gdb", &compared.gdb, &second.trace)?;
        compared.examples.extend(examples);
    }
    let _ = fs::remove_dir_all(&folder);
    Ok(compared)
}

/// One sampled run, and the paths of its files.
struct Sampling {
    folder: PathBuf,
    trace: PathBuf,
    samples: PathBuf,
    debugged: PathBuf,
    preload: OsString,
    every: f64,
}

impl Sampling {
    fn of(programs: &Programs, case: &Case, folder: PathBuf, every: f64) -> Result<Sampling> {
        let trace = folder.join("trace");
        fs::create_dir_all(&trace).map_err(|error| scratch_failure(case.name, error))?;
        let recorder = LibraryPath::from_environment().find(Library::Recorder)?;
        let preload = preload_value(&[programs.path(SAMPLER), recorder])?;
        Ok(Sampling {
            samples: folder.join("samples"),
            debugged: folder.join("debugged"),
            folder,
            trace,
            preload,
            every,
        })
    }

    /// With gdb's script, the program runs under gdb, and only the program gets the preloads.
    fn launch(&self, case: &Case, debugger: Option<(&Path, u32)>) -> Launch<'_> {
        let mut launch = Launch::new(&case.words, None);
        let sampler = [
            ("SAMPLER_FILE".to_owned(), self.samples.clone().into()),
            ("SAMPLER_EVERY".to_owned(), self.every.to_string().into()),
        ];
        launch.environment.extend(sampler);
        let recorder = [
            (PRELOAD_VARIABLE, self.preload.clone()),
            (TRACE_DIRECTORY_VARIABLE, self.trace.clone().into()),
        ];
        let Some((script, most)) = debugger else {
            let own = recorder.map(|(name, value)| (name.to_owned(), value));
            launch.environment.extend(own);
            return launch;
        };
        launch
            .environment
            .push(("STACKS_FILE".to_owned(), self.debugged.clone().into()));
        launch
            .environment
            .push(("STACKS_MOST".to_owned(), most.to_string().into()));
        launch.wrapper = ["gdb", "-nx", "-batch"].map(OsString::from).to_vec();
        for (name, value) in recorder {
            let mut command = OsString::from(format!("set environment {name} "));
            command.push(value);
            launch.wrapper.extend(["-ex".into(), command]);
        }
        launch
            .wrapper
            .extend(["-x".into(), script.into(), "--args".into()]);
        launch
    }

    fn tally(&self, samples: &Path) -> Result<Tally> {
        let bytes = fs::read(samples).map_err(|error| scratch_failure("the samples", error))?;
        let recorded = samples::recorded(&self.trace).map_err(LabError::Recording)?;
        Ok(Tally::of(&recorded, &samples::parse(&bytes)))
    }
}

/// A tally's examples, with their frames' modules and offsets from the run's trace.
fn named(unwinder: &str, tally: &Tally, trace: &Path) -> Result<Vec<Value>> {
    let mut modules = HashMap::new();
    for trace in traces::all(trace)? {
        for module in trace.modules() {
            modules.insert((module.start, module.end), module.clone());
        }
    }
    let examples = tally.examples.iter();
    Ok(examples
        .map(|one| example(unwinder, one, &modules))
        .collect())
}

fn example(unwinder: &str, one: &Example, modules: &HashMap<(u64, u64), Module>) -> Value {
    let place = |&address: &u64| {
        let found = modules
            .values()
            .find(|m| (m.start..m.end).contains(&address));
        found.map_or(format!("{address:#x}"), |module| {
            let path = String::from_utf8_lossy(&module.path).into_owned();
            let offset = address.wrapping_sub(module.bias);
            format!("{}+{offset:#x}", printable::escape(&path))
        })
    };
    json!({
        "unwinder": unwinder,
        "verdict": format!("{:?}", one.verdict).to_lowercase(),
        "recorded": one.recorded.iter().map(place).collect::<Vec<_>>(),
        "complete": one.complete,
        "other": one.other.iter().map(place).collect::<Vec<_>>(),
    })
}

fn report(plan: &StacksPlan, compared: &[Compared]) -> Report {
    let mut tables = vec![table("Against libgcc's", compared, |one| &one.libgcc)];
    if plan.debugged > 0 {
        tables.push(table("Against gdb's", compared, |one| &one.gdb));
    }
    let figures = |tally: &Tally| {
        json!({
            "samples": tally.samples,
            "frames": tally.frames,
            "false": tally.wrong,
            "truncated": tally.truncated,
            "longer": tally.longer,
            "unrecorded": tally.unrecorded,
        })
    };
    let data = compared.iter().map(|one| {
        json!({
            "program": one.name,
            "events": one.counted.events,
            "recorder_truncated": one.counted.truncated_stacks,
            "libgcc": figures(&one.libgcc),
            "gdb": figures(&one.gdb),
            "examples": one.examples,
        })
    });
    Report {
        name: "stacks",
        title: "Recorded stacks against other unwinders",
        method: "Of a part of the allocations, at uneven steps, each frame's address;".to_owned(),
        allocators: Vec::new(),
        tables,
        notes: vec![
            "False: a frame that the other unwinder has not, or an end too early that is not reported. \
             Truncated: ends too early, and is marked so. Longer: goes on where the other gives up. Not \
             recorded: made by a function of the family in turn, which is one call in the trace; or by \
             a handler that interrupted the recorder, which the trace counts as lost."
                .to_owned(),
        ],
        plots: Vec::new(),
        data: json!({"figures": data.collect::<Vec<_>>()}),
    }
}

fn table(caption: &str, compared: &[Compared], tally: impl Fn(&Compared) -> &Tally) -> Table {
    let header = [
        "program",
        "samples",
        "frames each",
        "false",
        "truncated",
        "false or truncated, %",
        "longer",
        "not recorded",
    ];
    let mut table = Table::new(caption, header.map(str::to_owned));
    let mut sum = Tally::default();
    for one in compared {
        sum = sum.plus(tally(one));
        table.push(row(one.name, tally(one)));
    }
    table.push(row("all", &sum));
    table
}

fn row(name: &str, tally: &Tally) -> Vec<String> {
    let samples = tally.samples.max(1) as f64;
    let counts = [tally.wrong, tally.truncated];
    let share = counts.iter().sum::<u64>() as f64 * 100.0 / samples;
    vec![
        name.to_owned(),
        grouped(tally.samples),
        format!("{:.1}", tally.frames as f64 / samples),
        grouped(tally.wrong),
        grouped(tally.truncated),
        format!("{share:.3}"),
        grouped(tally.longer),
        grouped(tally.unrecorded),
    ]
}
