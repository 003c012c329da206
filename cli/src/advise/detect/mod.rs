//! The detectors: each looks for one pattern in the facts of an image. None of them knows of the
//! others; what two of them claim is counted once in `rank`.

mod arrays;
mod batch;
mod contents;
mod cures;
mod growth;
mod hot;
mod memory;
mod pairs;
mod short;
mod threads;

use std::collections::HashSet;

use super::claim::Claim;
use super::costs::Costs;
use super::element::Types;
use super::facts::ImageFacts;
use super::finding::{Confidence, Finding, Pattern};
use super::prove::{Answers, Questions};
use super::rank::Worth;

/// What the detectors asked of the trace.
pub struct Asked {
    short: short::Asked,
    pairs: pairs::Asked,
    memory: memory::Asked,
    hot: hot::Asked,
}

/// What has to be counted before anything can be concluded.
pub fn ask(image: &ImageFacts, worth: &Worth) -> (Asked, Questions) {
    let mut questions = Questions::default();
    let asked = Asked {
        short: short::ask(image, worth, &mut questions),
        pairs: pairs::ask(image, worth, &mut questions),
        memory: memory::ask(image, &mut questions),
        hot: hot::ask(image, &mut questions),
    };
    (asked, questions)
}

/// Everything that is found in an image, in an order that depends on the trace alone. `ended`: it
/// came to an end by itself, so that what lives is left.
pub fn conclude(
    image: &ImageFacts,
    costs: &Costs,
    types: &Types<'_>,
    asked: &Asked,
    answers: &Answers,
    ended: bool,
) -> Vec<Finding> {
    if image.lost_calls > 0 {
        return from_sums(image, costs);
    }
    let mut findings = short::conclude(image, &asked.short, answers);
    // What lives within a call need not be allocated at all, together with another or not.
    let within = findings.iter().filter(|f| {
        let proven = |claim: &Claim| matches!(claim, Claim::EndsWithin { .. });
        f.confidence > Confidence::Low && f.evidence.iter().any(proven)
    });
    let parts = within.flat_map(|finding| finding.parts.iter());
    let explained: HashSet<usize> = parts.map(|part| part.origin).collect();
    findings.extend(growth::detect(image, types));
    findings.extend(pairs::conclude(image, &asked.pairs, answers, &explained));
    findings.extend(batch::detect(image));
    findings.extend(memory::tiny(image, costs));
    findings.extend(memory::growing(image, &asked.memory, answers));
    if ended {
        let growing = findings.iter().filter(|f| f.pattern == Pattern::Growing);
        let growing: Vec<usize> = growing.map(|finding| finding.site).collect();
        let holder = |group: &[usize]| pairs::holder(&asked.pairs, answers, image, group);
        if image.tells_lost {
            findings.extend(memory::lost(image, holder));
        } else {
            let leaks = memory::leaks(image, holder).into_iter();
            findings.extend(leaks.filter(|leak| !growing.contains(&leak.site)));
        }
    }
    findings.extend(threads::detect(image));
    findings.extend(arrays::detect(image));
    findings.extend(contents::duplicates(image));
    findings.extend(contents::zeroed(image));
    findings.extend(hot::conclude(image, &asked.hot, answers));
    findings
}

/// What a trace can carry that calls are missing from: nothing of how long blocks lived, or together
/// with which.
fn from_sums(image: &ImageFacts, costs: &Costs) -> Vec<Finding> {
    let mut findings = memory::tiny(image, costs);
    findings.extend(contents::zeroed(image));
    findings
}
