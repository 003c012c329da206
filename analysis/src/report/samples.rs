//! The samples of processor time by the function that ran, as sites. What ran in the recorder is left out.
//!
//! Memory: by the distinct stacks of all process images. Time: a map look-up an event.

use larder_base::order;
use larder_trace::{Event, Events, StackId};
use rustc_hash::FxHashMap;

use super::Sampled;
use crate::reading::attribute::functions;
use crate::reading::functions::is_recorder;
use crate::reading::observe::{Finished, Live, Observer};
use crate::reading::sites::{By, SiteStack, SiteTable, SortKey, Sums};

pub struct Samples {
    /// Of the image that is being read: the sums, and the squares of the times.
    stacks: FxHashMap<StackId, (Sampled, f64)>,
    pub sites: SiteTable,
}

impl Default for Samples {
    fn default() -> Self {
        Samples {
            stacks: FxHashMap::default(),
            sites: SiteTable::with_stacks(),
        }
    }
}

impl Observer for Samples {
    type Note = ();

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Some((stack, one)) = Sampled::of(event) {
            let (sum, squares) = self.stacks.entry(stack).or_default();
            sum.add(one);
            *squares += (one.ns as f64).powi(2);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        let mut stacks: Vec<_> = std::mem::take(&mut self.stacks).into_iter().collect();
        order::sort_by_key(&mut stacks, |(stack, _)| *stack);
        for (stack, (sampled, squares)) in stacks {
            let chain = image.chain(stack);
            let Some(ran) = functions(&chain).next() else {
                continue;
            };
            if is_recorder(ran) {
                continue;
            }
            let (function, _) = image.resolver.function(ran);
            let by = By::Function(function.start());
            let site = Some(0);
            let stack = SiteStack { chain, site };
            let mut sums = Sums {
                calls: sampled.samples,
                time_ns: sampled.ns,
                ..Sums::default()
            };
            // Samples come by chance, each independent of the others.
            sums.variances[SortKey::Calls as usize] = sampled.samples as f64;
            sums.variances[SortKey::Time as usize] = squares;
            let id = self.sites.intern_by(&stack, by);
            self.sites.add(id, "", &sums, true, || stack.clone());
        }
    }
}
