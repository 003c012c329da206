//! The detectors: each looks for one pattern in the facts of an image, independently of the others;
//! `rank` counts once what two of them claim.

mod arrays;
mod batch;
mod contents;
mod copies;
mod cures;
mod growth;
mod hot;
mod inline;
mod memory;
mod pairs;
mod python;
mod short;
mod swept;
mod threads;

use rustc_hash::FxHashSet;

use super::claim::Claim;
use super::costs::Costs;
use super::element::Types;
use super::facts::{ImageFacts, Site};
use super::finding::{Confidence, Finding, Part, Pattern};
use super::prove::{Answers, Questions};
use super::rank::Worth;

/// The questions of the detectors.
pub struct Asked {
    short: short::Asked,
    pairs: pairs::Asked,
    memory: memory::Asked,
    hot: hot::Asked,
    copies: copies::Asked,
}

/// The questions that must be answered before anything can be concluded.
pub fn ask(image: &ImageFacts, worth: &Worth) -> (Asked, Questions) {
    let mut questions = Questions::default();
    let asked = Asked {
        short: short::ask(image, worth, &mut questions),
        pairs: pairs::ask(image, worth, &mut questions),
        memory: memory::ask(image, &mut questions),
        hot: hot::ask(image, &mut questions),
        copies: copies::ask(image, worth, &mut questions),
    };
    (asked, questions)
}

/// All findings of an image, in an order that depends on the trace alone. `ended`: the program ended by
/// itself, so live blocks are left.
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
    let short = short::conclude(image, types, &asked.short, answers);
    // Several blocks of one object are joined before a function is asked to keep its parts.
    let objects = pairs::objects(image, &asked.pairs, answers, &short.kept);
    let of_objects = origins(objects.iter());
    let mut pairs = pairs::conclude(image, &asked.pairs, answers, &short.within);
    pairs.retain(|pair| !of_objects.contains(&pair.site));
    pairs.extend(objects);
    for pair in pairs.iter_mut().filter(|pair| {
        is_in_library_class(image, types, pair) || is_row_of_its_own(image, types, pair)
    }) {
        pair.confidence = Confidence::Low;
    }
    let batch = batch::detect(image);
    let sure = short.findings.iter().chain(&pairs).chain(&batch);
    let taken = origins(sure.filter(|finding| finding.confidence > Confidence::Low));
    let mut swept = swept::detect(image, &asked.short, answers, &taken);
    let sure = short.findings.iter().chain(&pairs).chain(&batch);
    let copies = copies::conclude(image, &asked.copies, answers, sure);
    // Texts of another run may be too long for their values.
    let is_text = |finding: &&Finding| image.sites[finding.site].container == Some("String");
    let others = short.findings.iter().chain(&batch);
    let others = others.chain(swept.iter().filter(is_text));
    let mut findings = without_copies(image, inline::detect(image, types, others), copies);
    let held = origins(findings.iter());
    swept.retain(|finding| !all_parts(finding, &held));
    let of_swept = origins(swept.iter());
    findings.extend(short.findings.into_iter().filter(|finding| {
        let objects = finding.pattern == Pattern::Reuse && all_parts(finding, &of_objects);
        let arena = finding.pattern == Pattern::Arena && all_parts(finding, &of_swept);
        !objects && !arena
    }));
    findings.extend(swept);
    findings.extend(growth::detect(image, types));
    findings.extend(pairs);
    findings.extend(batch);
    // Blocks that are saved need no pool.
    let gone = findings
        .iter()
        .filter(|f| f.confidence > Confidence::Low && f.calls() > 0);
    let gone = origins(gone);
    let tiny = memory::tiny(image, costs).into_iter();
    findings.extend(tiny.filter(|finding| !all_parts(finding, &gone)));
    findings.extend(memory::growing(image, &asked.memory, answers));
    if ended {
        let left = left(image, asked, answers, &findings);
        findings.extend(left);
    }
    let one_at_a_time = findings.iter().filter(|finding| {
        let alone = |claim: &Claim| matches!(claim, Claim::AtOnce { most: 1, .. });
        finding.evidence.iter().any(alone)
    });
    let one_at_a_time = origins(one_at_a_time);
    // A single block at a time cannot be handed back in batches.
    let threads = threads::detect(image).into_iter();
    findings.extend(threads.filter(|f| !one_at_a_time.contains(&f.site)));
    findings.extend(arrays::detect(image));
    findings.extend(contents::duplicates(image));
    findings.extend(contents::zeroed(image));
    python::reword(image, types, &mut findings);
    weaken(image, &mut findings);
    findings.extend(hot::conclude(image, &asked.hot, answers));
    findings
}

/// Whether it embeds something in an object of Rust's library, which has no members of the program's.
fn is_in_library_class(image: &ImageFacts, types: &Types<'_>, pair: &Finding) -> bool {
    const LIBRARY: &[&str] = &["alloc::", "core::", "std::collections::"];
    let host = pair.related.last().map(|host| &image.sites[*host]);
    let file = |host: &Site| host.site_frame()?.source.file.clone();
    let is_rust = |host: &&Site| file(host).is_some_and(|file| file.ends_with(".rs"));
    let host = host.filter(is_rust).and_then(|host| types.of(host));
    host.is_some_and(|host| LIBRARY.iter().any(|library| host.name.starts_with(library)))
}

/// Whether it embeds a row of elements that another function makes: another run may need another number.
fn is_row_of_its_own(image: &ImageFacts, types: &Types<'_>, pair: &Finding) -> bool {
    let row = &image.sites[pair.site];
    let first = pair.related.first().map(|first| &image.sites[*first]);
    let set_apart = first.is_some_and(|first| first.function_name() != row.function_name());
    set_apart && types.of(row).is_some_and(|found| found.several)
}

/// Findings to hold values inline, and to copy less. A type that several lines copy is cured at the type, and so is
/// what is a part of another object; what one line need not copy needs no place.
fn without_copies(
    image: &ImageFacts,
    mut held: Vec<Finding>,
    mut copies: Vec<Finding>,
) -> Vec<Finding> {
    let goes_beyond =
        |held: &Finding, copies: &Finding| !all_parts(held, &origins(std::iter::once(copies)));
    copies.retain(|copies| {
        let mut copied = copies.parts.iter().map(|part| &image.sites[part.origin]);
        let is_part = copied.all(Site::is_part);
        let stronger = held
            .iter()
            .filter(|held| is_part || goes_beyond(held, copies));
        !all_parts(copies, &origins(stronger))
    });
    held.retain(|held| copies.iter().all(|copies| goes_beyond(held, copies)));
    held.extend(copies);
    held
}

/// What is live at the end, but for lines that are known to grow.
fn left(image: &ImageFacts, asked: &Asked, answers: &Answers, known: &[Finding]) -> Vec<Finding> {
    let holder = |group: &[usize]| pairs::holder(&asked.pairs, answers, image, group);
    if image.records_lost {
        return memory::lost(image, holder);
    }
    let growing = known.iter().filter(|f| f.pattern == Pattern::Growing);
    let growing: Vec<usize> = growing.map(|finding| finding.site).collect();
    let mut leaks = memory::leaks(image, holder);
    leaks.retain(|leak| !growing.contains(&leak.site));
    leaks
}

/// Whether all that it saves was allocated in the first tenth of the run: another run allocates the
/// same of it, and more of everything else.
fn is_set_up(image: &ImageFacts, finding: &Finding) -> bool {
    let early = |part: &Part| image.sites[part.origin].facts.latest < image.allocations / 10;
    finding.calls() > 0 && finding.parts.iter().all(early)
}

/// Lowers the confidence of what is rarely worth it.
fn weaken(image: &ImageFacts, findings: &mut [Finding]) {
    for finding in findings
        .iter_mut()
        .filter(|finding| is_set_up(image, finding))
    {
        finding.confidence = finding.confidence.weaker();
    }
}

fn origins<'a>(findings: impl Iterator<Item = &'a Finding>) -> FxHashSet<usize> {
    let parts = findings.flat_map(|finding| finding.parts.iter());
    parts.map(|part| part.origin).collect()
}

fn all_parts(finding: &Finding, origins: &FxHashSet<usize>) -> bool {
    finding
        .parts
        .iter()
        .all(|part| origins.contains(&part.origin))
}

/// The findings of a trace with missing calls: none that depends on lifetimes, or on blocks that live
/// together.
fn from_sums(image: &ImageFacts, costs: &Costs) -> Vec<Finding> {
    let mut findings = memory::tiny(image, costs);
    findings.extend(contents::zeroed(image));
    findings
}
