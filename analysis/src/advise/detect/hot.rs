//! Lines with many of all calls and no known cure: the finding reports what is known of them. `rank`
//! drops those for which a cure was found.

use std::collections::BTreeMap;

use larder_base::number::{counted, grouped, percent};
use larder_base::order;

use crate::advise::facts::{ImageFacts, Lives};
use crate::advise::finding::{Confidence, Finding, Pattern, grouped_by, no_calls};
use crate::advise::prove::{self, Answers, Questions};
use crate::advise::sizes::Sizes;
use crate::reading::naming::function_name;

/// In percent of all calls.
const HOT_SHARE: f64 = 5.0;
const FEWEST_CALLS: u64 = 1000;
const CALLERS_SHOWN: usize = 3;

/// Hot lines, and the question about each.
pub struct Asked(Vec<(Vec<usize>, prove::Asked)>);

pub fn ask(image: &ImageFacts, questions: &mut Questions) -> Asked {
    let groups = grouped_by(image, |_, site| Some(site.place));
    let hot = groups.into_iter().filter(|group| {
        let calls = calls(image, group);
        // A collector's blocks cannot be avoided.
        calls >= FEWEST_CALLS
            && percent(calls, image.allocations) >= HOT_SHARE
            && !image.is_swept(&image.sites[group[0]])
    });
    let asked = hot.map(|group| {
        let asked = questions.at_once(&group);
        (group, asked)
    });
    Asked(asked.collect())
}

pub fn conclude(image: &ImageFacts, asked: &Asked, answers: &Answers) -> Vec<Finding> {
    let found = asked.0.iter().map(|(group, asked)| {
        let at_once = answers.at_once(*asked);
        let sites = || group.iter().map(|origin| &image.sites[*origin]);
        let (mut sizes, mut lives) = (Sizes::default(), Lives::default());
        for site in sites() {
            sizes.merge(&site.facts.sizes);
            lives.merge(&site.facts.lives);
        }
        let calls = calls(image, group);
        let most = sizes.covering(0.9);
        let lived = match lives.half() {
            Some(half) => format!("half of them lived for up to {}", counted(half, "other allocation")),
            None => "none was freed".to_owned(),
        };
        Finding {
            pattern: Pattern::Hot,
            site: group[0],
            related: Vec::new(),
            parts: no_calls(image, group),
            memory_bytes: 0,
            keeper: None,
            evidence: vec![
                format!(
                    "{}, {:.1} % of all, {}; up to {} at once, {lived}; called from {}",
                    counted(calls, "call"),
                    percent(calls, image.allocations),
                    match sizes.smallest() == sizes.largest() {
                        true => format!("of {} bytes", grouped(most)),
                        false => format!(
                            "of {} to {} bytes (90 % up to {})",
                            grouped(sizes.smallest()),
                            grouped(sizes.largest()),
                            grouped(most)
                        ),
                    },
                    grouped(at_once.most),
                    callers(image, group),
                )
                .into(),
            ],
            cure: format!(
                "no cure is known: a pool of {} for up to {} would help, or a loop that allocates less often",
                match sizes.smallest() == sizes.largest() {
                    true => format!("{} bytes", grouped(most)),
                    false => "several sizes".to_owned(),
                },
                counted(at_once.most, "block"),
            ),
            size_bytes: None,
            confidence: Confidence::Low,
        }
    });
    found.collect()
}

fn calls(image: &ImageFacts, group: &[usize]) -> u64 {
    group
        .iter()
        .map(|origin| image.sites[*origin].sums.calls)
        .sum()
}

/// The functions that call the line's function most often, with their shares.
fn callers(image: &ImageFacts, group: &[usize]) -> String {
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for site in group.iter().map(|origin| &image.sites[*origin]) {
        let name = site
            .caller_frame()
            .map_or("an unknown caller".to_owned(), function_name);
        *by_name.entry(name).or_default() += site.sums.calls;
    }
    let mut ranked: Vec<(String, u64)> = by_name.into_iter().collect();
    order::sort_by_key(&mut ranked, |(_, calls)| std::cmp::Reverse(*calls));
    let all = calls(image, group);
    let shown = ranked.iter().take(CALLERS_SHOWN);
    let mut text: Vec<String> = shown
        .map(|(name, calls)| format!("{name} ({:.0} %)", percent(*calls, all)))
        .collect();
    if ranked.len() > CALLERS_SHOWN {
        text.push(format!("{} more", ranked.len() - CALLERS_SHOWN));
    }
    text.join(", ")
}
