//! What samples of processor time show of copies that are not recorded: libc's functions that copy, called within
//! libc.
//!
//! Memory: by the distinct stacks of one process image, and the functions of all.

use larder_trace::{CopyCall, Event, StackId};
use rustc_hash::FxHashMap;

use crate::reading::functions::{CountedFunction, FunctionId, FunctionTable, Leaf};
use crate::reading::observe::Finished;
use crate::report::cpu::Sampled;

#[derive(Default)]
pub struct Unseen {
    /// Of the image that is being read.
    stacks: FxHashMap<StackId, Sampled>,
    functions: FunctionTable,
    /// All samples but the recorder's.
    pub all: Sampled,
    pub by_libc: Sampled,
}

impl Unseen {
    pub fn event(&mut self, event: &Event) {
        if let Some((stack, one)) = Sampled::of(event) {
            self.stacks.entry(stack).or_default().add(one);
        }
    }

    pub fn end_image(&mut self, image: &mut Finished<'_, '_>) {
        for (stack, sampled) in std::mem::take(&mut self.stacks) {
            let chain = image.chain(stack);
            let path = self.functions.path(image.resolver, &chain, Leaf::Sample);
            if path.first() == Some(&FunctionId::RECORDER) {
                continue;
            }
            self.all.add(sampled);
            if let [copies, caller, ..] = path[..] {
                let [copies, caller] = [copies, caller].map(|id| self.functions.get(id));
                if is_of_libc(copies) && is_of_libc(caller) && copies_memory(&copies.name) {
                    self.by_libc.add(sampled);
                }
            }
        }
    }
}

fn is_of_libc(function: &CountedFunction) -> bool {
    let module = function.module.as_ref();
    module.is_some_and(|module| module.name.starts_with("libc.so"))
}

/// Whether it is a function that copies, or its form for a processor: `__memmove_avx_unaligned_erms`.
fn copies_memory(name: &str) -> bool {
    let name = name.trim_start_matches('_').split(['_', '@']).next();
    let known = CopyCall::ALL.iter();
    let mut known = known.filter(|call| !call.formats() && !call.duplicates());
    known.any(|call| Some(call.name()) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_for_a_processor_are_known() {
        for name in [
            "memcpy",
            "__memmove_avx512_unaligned_erms",
            "__mempcpy",
            "__memset_evex_unaligned",
            "__strcpy_avx2",
            "__wmemset_sse2_unaligned",
            "memcpy@@GLIBC_2.14",
        ] {
            assert!(copies_memory(name), "{name}");
        }
        for name in [
            "__memcmp_evex_movbe",
            "strdup",
            "_IO_file_xsputn",
            "vfprintf",
            "",
        ] {
            assert!(!copies_memory(name), "{name}");
        }
    }
}
