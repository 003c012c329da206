//! What a detector counts of system calls: the needless ones by stack, of how many.

use std::collections::HashMap;

use larder_trace::StackId;

use super::{Called, Concluded, Conclusion, Figures, Pattern, Total};

/// Memory: by the stacks that call.
#[derive(Default)]
pub struct Counts {
    needless: HashMap<(Pattern, StackId, Option<StackId>), Figures>,
    all: HashMap<(Pattern, StackId), u64>,
}

impl Counts {
    /// A call that the pattern might say is needless.
    pub fn asked(&mut self, pattern: Pattern, now: &Called) {
        *self.all.entry((pattern, now.stack)).or_default() += 1;
    }

    /// A call that is needless. `other`: the call that shows it, if a line of its own makes it.
    pub fn needless(
        &mut self,
        pattern: Pattern,
        now: &Called,
        other: Option<StackId>,
    ) -> &mut Figures {
        let key = (pattern, now.stack, other);
        let figures = self.needless.entry(key).or_default();
        figures.calls += 1;
        figures.ns += now.ns;
        figures
    }

    pub fn conclude(self, concluded: &mut Concluded) {
        let found = self.needless.into_iter();
        concluded
            .found
            .extend(found.map(|((pattern, stack, other), figures)| Conclusion {
                pattern,
                stack,
                other,
                format: None,
                figures,
            }));
        let totals = self.all.into_iter();
        concluded
            .totals
            .extend(totals.map(|((pattern, stack), of)| Total {
                pattern,
                stack,
                of,
                others: 0,
            }));
    }
}
