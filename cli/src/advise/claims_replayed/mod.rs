//! Claims of random programs, each held against a replay of the calls by brute force, and each
//! changed on purpose, which must not pass.
//!
//! ```text
//! program ─> write ─> Analysis, Watch, prove, detect ─> claims ─┐
//!    └─> replay (what truly happened) ─────────────────> check <┘
//! ```
//!
//! `LARDER_CLAIM_TRACES` says how many programs, `LARDER_CLAIM_SEED` the first one's seed.

mod check;
mod program;
mod replay;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use larder_trace::Trace;

use super::claim::Claim;
use super::costs::{AllCosts, Costs};
use super::element::Types;
use super::{Watch, detect, prove_all};
use crate::analysis::Analysis;
use crate::analysis::resolve::Charging;
use crate::analysis::subject::Subject;
use program::Program;
use replay::Replay;

const TRACES: u64 = 2000;

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
    let proven = prove_all(watch, &mut analysis);
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
        Claim::Rises { .. } => "rises",
        Claim::Note(_) => "note",
    }
}

#[derive(Default)]
struct Tally {
    claims: BTreeMap<&'static str, u64>,
    failures: Vec<Failure>,
}

/// A claim that is not true.
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
        let program = Program::new(seed);
        let path = folder.join("1-0.ltrace");
        write::write(&program, &path).unwrap();
        let replay = Replay::of(program);
        let trace = Trace::open(&path).unwrap();
        let mut events = trace.events();
        while events.next().is_some() {}
        for claim in claims(&path, costs) {
            *self.claims.entry(kind(&claim)).or_default() += 1;
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
        self.failures.extend(other.failures);
    }
}

fn fast_folder() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

#[test]
fn every_claim_holds_in_a_replay_by_brute_force() {
    let traces = from_environment("LARDER_CLAIM_TRACES").unwrap_or(TRACES);
    let first = from_environment("LARDER_CLAIM_SEED").unwrap_or(1);
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut all = Tally::default();
    std::thread::scope(|scope| {
        let work = |worker: u64| {
            move || {
                let (mut tally, folder) = (Tally::default(), fast_folder());
                let costs = AllCosts::default().of(&[]);
                for seed in (first + worker..first + traces).step_by(workers as usize) {
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
    assert!(
        all.failures.is_empty(),
        "{} fail: {:#?}",
        all.failures.len(),
        shortest(&all.failures)
    );
}
