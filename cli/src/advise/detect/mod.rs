//! The detectors: each looks for one pattern in the facts of an image. None of them knows of the
//! others; what two of them claim is counted once in `rank`.

mod arrays;
mod batch;
mod contents;
mod growth;
mod hot;
mod memory;
mod pairs;
mod short;
mod threads;

use super::element::Types;
use super::facts::ImageFacts;
use super::finding::{Finding, Pattern};

/// Everything that is found in an image, in no order. `ended`: it came to an end by itself, so that
/// what lives is left.
pub fn all(image: &ImageFacts, types: &Types<'_>, ended: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(short::detect(image));
    findings.extend(growth::detect(image, types));
    findings.extend(pairs::detect(image));
    findings.extend(batch::detect(image));
    findings.extend(memory::tiny(image));
    findings.extend(memory::growing(image));
    if ended {
        let growing: Vec<usize> = findings
            .iter()
            .filter(|finding| finding.pattern == Pattern::Growing)
            .map(|finding| finding.site)
            .collect();
        let leaks = memory::leaks(image).into_iter();
        findings.extend(leaks.filter(|leak| !growing.contains(&leak.site)));
    }
    findings.extend(threads::detect(image));
    findings.extend(arrays::detect(image));
    findings.extend(contents::duplicates(image));
    findings.extend(contents::zeroed(image));
    findings.extend(hot::detect(image));
    findings
}
