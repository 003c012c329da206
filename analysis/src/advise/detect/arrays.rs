//! Large arrays of one size that begin at the same place of their pages: a loop over several of
//! them in step finds their elements in the same cache sets, and loads wait for stores whose
//! addresses differ by a multiple of 4,096.

use std::collections::BTreeMap;
use std::rc::Rc;

use larder_base::number::{counted, grouped};

use crate::advise::facts::{Array, ImageFacts};
use crate::advise::finding::{Confidence, Finding, Pattern, no_calls};

/// Fewer arrays fit into the ways of a cache set.
const FEWEST_ARRAYS: usize = 3;

pub fn detect(image: &ImageFacts) -> Option<Finding> {
    // Arrays that are used together are allocated together, with equal sizes.
    let mut together: BTreeMap<(u64, Option<Rc<str>>), Vec<Array>> = BTreeMap::new();
    for array in &image.aliases {
        let site = image.sites.get(array.origin.index())?;
        let caller = site
            .site_frame()
            .and_then(|frame| frame.source.function.as_ref())
            .map(|function| function.symbol.clone());
        together
            .entry((array.size, caller))
            .or_default()
            .push(*array);
    }
    let arrays = together.into_values().max_by_key(Vec::len)?;
    let first = arrays.first().filter(|_| arrays.len() >= FEWEST_ARRAYS)?;
    let mut origins: Vec<usize> = arrays.iter().map(|array| array.origin.index()).collect();
    origins.sort_unstable();
    origins.dedup();
    Some(Finding {
        pattern: Pattern::Alias,
        site: first.origin.index(),
        related: Vec::new(),
        parts: no_calls(image, &origins),
        memory_bytes: 0,
        keeper: None,
        evidence: vec![
            format!(
                "{} of {} bytes, live together, all begin at byte {} of a page",
                counted(arrays.len() as u64, "array"),
                grouped(first.size),
                first.address % 4096
            )
            .into(),
        ],
        cure:
            "if a loop reads several of them in step, start each at another cache line: allocate \
               64 × its index bytes more and skip them; Larder does this itself"
                .to_owned(),
        size_bytes: None,
        confidence: Confidence::Medium,
    })
}
