//! A trace as the memory log of a debug curl, for curl's own analyser: one line a call, at the
//! source line of its site, in the order of the trace.
//!
//! The log has no threads, no failed calls and no processes: failed calls and `free(NULL)` are left
//! out, and one process image is written. A realloc is one line, although other threads' calls may come
//! between its begin and its end. The line is placed at its end, unless the old address was returned
//! again before: then it is placed before that call (the realloc has its new block by then). Memory
//! grows with the distinct stacks, and with the lines that wait for such a realloc.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;

use larder_base::failure::Result;
use larder_base::output::{self, Content};
use larder_memdebug::Call as Logged;
use larder_trace::{Action, AllocCall, Event, Events, StackId, Trace};
use rustc_hash::FxHashMap;

use super::ExportPlan;
use crate::error::AnalysisError;
use crate::reading::attribute::{attribute, functions};
use crate::reading::family::Kind;
use crate::reading::losses;
use crate::reading::resolve::{Charging, Resolver};

/// curl cuts a line at 1,023 bytes; this leaves room for the call.
const MAX_PATH_BYTES: usize = 800;

pub fn export(plan: &ExportPlan) -> Result<()> {
    let (traces, _) = plan.subject.open()?;
    let [trace] = traces.as_slice() else {
        let lack = format!(
            "holds {} process images, and a log holds one: name one of its .ltrace files",
            traces.len()
        );
        return Err(AnalysisError::unfit(&plan.subject.trace, lack).into());
    };
    if trace.counters().is_some() {
        let lack = "holds counters only: record it again without --aggregate";
        return Err(AnalysisError::unfit(&plan.subject.trace, lack).into());
    }
    let mut missing = Vec::new();
    output::write(plan.output.as_deref(), Content::Text, |out| {
        let mut log = Log::new(trace, plan.subject.charging.clone());
        let mut events = trace.events();
        while let Some(event) = events.next() {
            log.event(&event, &events);
            log.write(out)?;
        }
        log.give_up();
        missing = losses::of_events(trace, &events);
        log.write(out)
    })?;
    missing.iter().for_each(|line| losses::warn(line));
    Ok(())
}

/// The place of a call: path and line of its site.
type Place = Rc<(Vec<u8>, u64)>;

/// A line of the log.
enum Entry {
    Call(Place, Logged),
    /// The open realloc of this thread; its result is known at its end.
    Realloc(u32),
}

struct Log<'t> {
    trace: &'t Trace,
    resolver: Resolver,
    places: FxHashMap<StackId, Place>,
    /// The old block of a thread's open realloc, and whether it has its line.
    reallocs: FxHashMap<u32, (u64, bool)>,
    waiting: VecDeque<Entry>,
}

impl<'t> Log<'t> {
    fn new(trace: &'t Trace, charging: Charging) -> Self {
        let mut resolver = Resolver::new(charging);
        resolver.begin_image();
        Self {
            trace,
            resolver,
            places: FxHashMap::default(),
            reallocs: FxHashMap::default(),
            waiting: VecDeque::new(),
        }
    }

    fn event(&mut self, event: &Event, events: &Events<'_>) {
        match event.action {
            Action::Alloc {
                call,
                address,
                size,
                count,
                stack,
                ..
            } if address != 0 => {
                self.address_taken(address);
                let place = self.place(stack, events);
                let call = made(call, address, size, count);
                self.waiting.push_back(Entry::Call(place, call));
            }
            Action::Free { address, stack, .. } if address != 0 => {
                let place = self.place(stack, events);
                self.waiting
                    .push_back(Entry::Call(place, Logged::Free { at: address }));
            }
            Action::ReallocStart { old, .. } => {
                self.reallocs.insert(event.thread, (old, false));
            }
            Action::ReallocEnd {
                old,
                address,
                size,
                stack,
                ..
            } => {
                let started = self.reallocs.remove(&event.thread);
                let call = match (address, size, old) {
                    (0, 0, 1..) => Some(Logged::Free { at: old }),
                    (0, ..) => None,
                    _ => Some(Logged::Realloc {
                        old,
                        size,
                        at: address,
                    }),
                };
                if address != 0 {
                    self.address_taken(address);
                }
                let entry = call.map(|call| Entry::Call(self.place(stack, events), call));
                self.finish_realloc(
                    event.thread,
                    started.is_some_and(|(_, entered)| entered),
                    entry,
                );
            }
            _ => {}
        }
    }

    /// A realloc that has freed this address, and is still open, comes before later lines.
    fn address_taken(&mut self, address: u64) {
        for (&thread, (old, entered)) in &mut self.reallocs {
            if *old == address && !*entered {
                *entered = true;
                self.waiting.push_back(Entry::Realloc(thread));
            }
        }
    }

    fn finish_realloc(&mut self, thread: u32, entered: bool, entry: Option<Entry>) {
        let place = self
            .waiting
            .iter()
            .position(|waiting| matches!(waiting, Entry::Realloc(t) if *t == thread));
        match (entered, place, entry) {
            (true, Some(place), Some(entry)) => {
                if let Some(waiting) = self.waiting.get_mut(place) {
                    *waiting = entry;
                }
            }
            (true, Some(place), None) => _ = self.waiting.remove(place),
            (_, _, Some(entry)) => self.waiting.push_back(entry),
            (_, _, None) => {}
        }
    }

    /// Reallocs whose end is not in the trace are left out.
    fn give_up(&mut self) {
        self.waiting
            .retain(|entry| matches!(entry, Entry::Call(..)));
    }

    fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        while let Some(Entry::Call(place, call)) = self.waiting.front() {
            let (path, line) = &**place;
            call.write(path, *line, out)?;
            writeln!(out)?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn place(&mut self, stack: StackId, events: &Events<'_>) -> Place {
        if let Some(place) = self.places.get(&stack) {
            return place.clone();
        }
        let stacks = events.stacks();
        let chain = self.resolver.chain(self.trace, stacks, stack);
        let site = attribute(&chain, &[]).site;
        let frame = site.and_then(|index| functions(&chain).nth(index));
        let (path, line) = match frame {
            Some(frame) => match (&frame.source.file, frame.source.line) {
                (Some(file), Some(line)) => (file.to_string(), line.into()),
                _ => (format!("{}+{:#x}", frame.module.name, frame.address), 0),
            },
            None => ("unknown".to_owned(), 0),
        };
        let path = path.into_bytes();
        let end = path.len().saturating_sub(MAX_PATH_BYTES);
        let place: Place = Rc::new((path.get(end..).unwrap_or_default().to_vec(), line));
        self.places.insert(stack, place.clone());
        place
    }
}

/// An allocating call in the log's form. The source of a copied string is not known: any address is
/// valid.
fn made(call: AllocCall, at: u64, size: u64, count: u64) -> Logged {
    match Kind::of(call) {
        Kind::Calloc if count > 0 && size.is_multiple_of(count) => Logged::Calloc {
            count,
            size: size / count,
            at,
        },
        Kind::Calloc => Logged::Calloc { count: 1, size, at },
        Kind::Strdup => Logged::Strdup { from: at, size, at },
        Kind::Wcsdup => Logged::Wcsdup { from: at, size, at },
        Kind::Malloc | Kind::Realloc => Logged::Malloc { size, at },
    }
}
