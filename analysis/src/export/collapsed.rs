//! Collapsed stacks: `outermost;…;innermost N`, a line each, equal stacks in one.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::Weighed;
use super::names::folded;
use crate::reading::measure::Measure;
use crate::reading::stacks::StackRow;

pub fn write(weighed: &Weighed<'_>, out: &mut dyn Write) -> io::Result<()> {
    for (stack, value) in folded_sums(weighed.rows, weighed.measure) {
        writeln!(out, "{stack} {value}")?;
    }
    Ok(())
}

/// Stacks by name, with their values; those of 0 are left out.
pub fn folded_sums(rows: &[StackRow], measure: Measure) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let value = measure.of(row);
        if value > 0 {
            let sum: &mut u64 = sums.entry(folded(row)).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    sums
}
