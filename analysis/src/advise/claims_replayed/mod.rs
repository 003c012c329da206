//! Checks the claims about random programs against a replay of the calls by brute force, and that each
//! claim, changed on purpose, is refuted.
//!
//! ```text
//! program ─> write ─> Analysis, Watch, prove, detect ─> claims ─┐
//!    └─> replay (what truly happened) ─────────────────> check <┘
//! ```
//!
//! `LARDER_CLAIM_TRACES` is the number of programs, `LARDER_CLAIM_SEED` the first one's seed.

/// A claim is false unless this holds.
macro_rules! hold {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

mod check;
mod grown;
mod held;
mod program;
mod replay;
mod write;
mod wrong;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use larder_trace::Trace;

use super::claim::Claim;
use super::costs::{AllCosts, Costs};
use super::element::Types;
use super::finding::Confidence;
use super::{Watch, detect, prove_all};
use crate::reading::Analysis;
use crate::reading::resolve::Charging;
use crate::reading::subject::Subject;
use program::Program;
use replay::Replay;

const TRACES: u64 = 2000;
/// The number of traces with the claim.
const FEWEST_OF_A_KIND: u64 = 15;

const KINDS: [&str; 17] = [
    "ends within",
    "at once in the process",
    "at once in a thread",
    "at once in a call",
    "together",
    "rows",
    "foreign",
    "left",
    "lost",
    "rises",
    "grew",
    "ends",
    "equal",
    "source",
    "overwritten",
    "freed",
    "swept",
];

fn traces() -> u64 {
    from_environment("LARDER_CLAIM_TRACES").unwrap_or(TRACES)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The claims that the tool makes of a trace file.
fn claims(path: &Path, costs: &Costs) -> Vec<Claim> {
    let subject = Subject {
        trace: path.to_owned(),
        pid: None,
        wrappers: Vec::new(),
        charging: Charging::default(),
    };
    let mut watch = Watch::default();
    let mut analysis = Analysis::read(&subject, &mut watch).unwrap();
    let proven = prove_all(Confidence::Low, watch, &[], &mut analysis);
    let types = Types::new(&analysis.resolver);
    let findings = proven.iter().flat_map(|(image, facts, asked, answers)| {
        let image = &analysis.images[*image];
        assert!(image.damage.is_empty());
        detect::conclude(facts, costs, &types, asked, answers, image.ended())
    });
    findings.flat_map(|finding| finding.evidence).collect()
}

fn kind(claim: &Claim) -> &'static str {
    match claim {
        Claim::EndsWithin { .. } => "ends within",
        Claim::AtOnce { scope, .. } => match scope {
            super::claim::Scope::Process => "at once in the process",
            super::claim::Scope::Thread => "at once in a thread",
            super::claim::Scope::Call => "at once in a call",
        },
        Claim::Together { .. } => "together",
        Claim::Rows { .. } => "rows",
        Claim::Foreign { .. } => "foreign",
        Claim::Left { .. } => "left",
        Claim::Lost { .. } => "lost",
        Claim::Rises { .. } => "rises",
        Claim::Grew { .. } => "grew",
        Claim::Ends { .. } => "ends",
        Claim::Equal { .. } => "equal",
        Claim::Source { .. } => "source",
        Claim::Overwritten { .. } => "overwritten",
        Claim::Freed { .. } => "freed",
        Claim::Swept { .. } => "swept",
        Claim::Note(_) => "note",
    }
}

#[derive(Default)]
struct Tally {
    claims: BTreeMap<&'static str, u64>,
    /// By kind and change: false claims, and those of them that were refuted.
    refuted: BTreeMap<(&'static str, &'static str), (u64, u64)>,
    failures: Vec<Failure>,
}

/// A false claim.
struct Failure {
    kind: &'static str,
    calls: usize,
    text: String,
}

/// The shortest programs of each kind of claim that failed.
fn shortest(failures: &[Failure]) -> Vec<&str> {
    const SHOWN: usize = 3;
    let mut by_kind: BTreeMap<&str, Vec<&Failure>> = BTreeMap::new();
    for failure in failures {
        by_kind.entry(failure.kind).or_default().push(failure);
    }
    let shown = by_kind.into_values().flat_map(|mut failures| {
        failures.sort_by_key(|failure| failure.calls);
        let shown = failures.into_iter().take(SHOWN);
        shown.map(|failure| &*failure.text)
    });
    shown.collect()
}

impl Tally {
    fn take(&mut self, seed: u64, folder: &Path, costs: &Costs) {
        let mut program = Program::new(seed);
        let path = folder.join("1-0.ltrace");
        // A quarter of the traces lose their times.
        let has_times = !seed.is_multiple_of(4);
        if !has_times {
            program.forget_all_but_calls();
        }
        write::write(&program, &path).unwrap();
        assert!(has_times || larder_trace::drop_times(&path).unwrap());
        let replay = Replay::of(program);
        let trace = Trace::open(&path).unwrap();
        let mut events = trace.events();
        while events.next().is_some() {}
        for claim in claims(&path, costs) {
            *self.claims.entry(kind(&claim)).or_default() += 1;
            for (change, wrong) in wrong::wrong(&replay, events.stacks(), &claim) {
                let refuted = check::check(&replay, events.stacks(), &wrong).is_err();
                let counts = self.refuted.entry((kind(&claim), change)).or_default();
                counts.0 += 1;
                counts.1 += u64::from(refuted);
            }
            if let Err(why) = check::check(&replay, events.stacks(), &claim) {
                self.failures.push(Failure {
                    kind: kind(&claim),
                    calls: replay.calls.len(),
                    text: format!("seed {seed}: {why}: {}: {claim:?}", claim.text()),
                });
            }
        }
    }

    fn merge(&mut self, other: Tally) {
        for (kind, count) in other.claims {
            *self.claims.entry(kind).or_default() += count;
        }
        for (change, (all, refuted)) in other.refuted {
            let counts = self.refuted.entry(change).or_default();
            *counts = (counts.0 + all, counts.1 + refuted);
        }
        self.failures.extend(other.failures);
    }
}

fn fast_folder() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// All programs, once for all tests.
fn tally() -> &'static Tally {
    static TALLY: OnceLock<Tally> = OnceLock::new();
    TALLY.get_or_init(|| {
        let first = from_environment("LARDER_CLAIM_SEED").unwrap_or(1);
        let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let mut all = Tally::default();
        std::thread::scope(|scope| {
            let work = |worker: u64| {
                move || {
                    let (mut tally, folder) = (Tally::default(), fast_folder());
                    let costs = AllCosts::default().of(&[]);
                    for seed in (first + worker..first + traces()).step_by(workers as usize) {
                        tally.take(seed, folder.path(), &costs);
                    }
                    tally
                }
            };
            let running: Vec<_> = (0..workers)
                .map(|worker| scope.spawn(work(worker)))
                .collect();
            for worker in running {
                all.merge(worker.join().unwrap());
            }
        });
        println!("{:?}", all.claims);
        all
    })
}

#[test]
fn every_claim_holds_in_a_replay_by_brute_force() {
    let failures = &tally().failures;
    let shown = shortest(failures);
    assert!(shown.is_empty(), "{} fail: {shown:#?}", failures.len());
}

#[test]
fn every_false_claim_is_refuted() {
    for ((kind, change), (all, refuted)) in &tally().refuted {
        let least = match *change {
            wrong::NOT_ALWAYS => all * 9 / 10,
            _ => *all,
        };
        assert!(*refuted >= least, "{kind}, {change}: {refuted} of {all}");
    }
}

#[test]
fn every_kind_of_claim_occurs() {
    if traces() < TRACES {
        return;
    }
    let tally = tally();
    for kind in KINDS {
        let count = tally.claims.get(kind).copied().unwrap_or(0);
        assert!(count >= FEWEST_OF_A_KIND, "{kind}: {count}");
        let changed = tally.refuted.keys().any(|(changed, _)| *changed == kind);
        assert!(changed, "{kind} was never changed");
    }
}
