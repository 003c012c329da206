//! One pass over a trace file. Every call goes to the heap of its process image and to the observer; at
//! the end of the image every stack is attributed, and its sums go to the sites.
//!
//! Memory is bounded by the live blocks and distinct stacks of one image, and by the sites of all.

use larder_trace::{
    self as trace, Action, AllocCall, Damage, DamageCause, EndState, Event, Events, FreeCall,
    Losses, ProcessInfo, StackId, StackTable, Trace,
};
use rustc_hash::FxHashMap;

use super::Analysis;
use super::attribute::{Attribution, Counted, attribute, functions};
use super::chain::Chain;
use super::family::{Counters, Kind};
use super::heap::{Heap, Origin, OriginId};
use super::log::{Log, Replay};
use super::observe::{End, Finished, Made, Moment, Observer};
use super::resolve::{ChainFrame, Resolver};
use super::sites::SiteStack;
use super::wrapper::{WrapperKind, WrapperRule};
use super::wrappers::{self, Path};

/// The result of one trace file.
#[derive(Debug)]
pub struct ImageReport {
    pub path: String,
    pub process: ProcessInfo,
    pub counters: Counters,
    pub threads: u64,
    /// Calls, those that failed and free(NULL) included.
    pub events: u64,
    pub duration_ns: u64,
    pub losses: Losses,
    pub damage: Vec<Damage>,
}

impl ImageReport {
    /// The program's calls that are not in the counters.
    pub fn lost_calls(&self) -> u64 {
        let damaged = self.damage.iter().filter_map(|damage| damage.events).sum();
        self.losses.calls().saturating_add(damaged)
    }

    /// Whether the recorder saw the end of the image.
    pub fn ended(&self) -> bool {
        self.process.end != EndState::Running
    }
}

/// The counters that a call from one stack adds to.
#[derive(Debug)]
pub struct Source {
    pub stack: StackId,
    pub call: AllocCall,
    /// The origin of the call.
    pub kind: Kind,
    pub kind_name: &'static str,
    header_bytes: u64,
    /// The charged frame, as an index over all functions of the stack from the innermost. Known after
    /// all of the image is read.
    pub site: Option<usize>,
}

impl Analysis {
    /// Reads one file to its end; `progress` is called for each event. `is_last`: no other is read after it.
    pub(super) fn add<O: Observer>(
        &mut self,
        trace: &Trace,
        observer: &mut O,
        is_last: bool,
        progress: impl FnMut(),
    ) {
        let mut events = trace.events();
        let mut log =
            O::LOOKS_AGAIN.then(|| Log::beside(self.again.iter().map(|again| &again.log)));
        let Walked {
            heap,
            mut sources,
            threads,
            lost_in_streams,
            mut count,
            mut last_time,
            lost_definitions,
        } = self.walk(trace, &mut events, observer, log.as_mut(), progress);
        if O::LOOKS_AGAIN {
            self.resolver.all_chains(trace, events.stacks());
            if is_last {
                self.resolver.rest();
            }
        }
        self.attribute(trace, &events, &mut sources, heap.origins());
        let mut damage = events.damage().to_vec();
        if let Some(counted) = trace.counters() {
            count = counted.calls();
            last_time = last_time.max(trace.noted_ticks());
            damage.extend(lost_definitions);
        }
        let duration_ns = trace.duration_ns(last_time);
        self.finish(trace, &events, observer, &sources, &heap, duration_ns);
        let (counters, origins) = (heap.counters().clone(), heap.origins());
        let keep_peak = self
            .sites
            .begin_image(counters.peak_bytes, trace.counters().is_none());
        for (source, origin) in sources.iter().zip(origins) {
            let resolver = &mut self.resolver;
            let mut stack = || SiteStack {
                chain: resolver.chain(trace, events.stacks(), source.stack),
                site: source.site,
            };
            let id = self.sites.intern(&stack());
            self.sites
                .add(id, source.kind_name, &origin.into(), keep_peak, stack);
        }
        if let Some(mut log) = log {
            log.finish(heap.live_slots());
            let stacks = events.into_stacks();
            self.again.push(Again { stacks, log });
        }
        self.counters += &counters;
        let mut losses = trace.losses();
        // A slot of the header can be behind the streams if the program was killed.
        losses.after_stop += lost_in_streams.saturating_sub(losses.calls());
        self.images.push(ImageReport {
            path: larder_base::printable::name(trace.path()),
            process: trace.process().clone(),
            counters,
            threads,
            events: count,
            duration_ns,
            losses,
            damage,
        });
    }

    /// Passes an image's calls to another observer: with the same origins in the same order, and without counting
    /// anything again. The observer sees no times, addresses and names.
    pub fn again<O: Observer>(
        &mut self,
        image: usize,
        trace: &Trace,
        observer: &mut O,
        progress: impl FnMut(),
    ) {
        let again = self.again.get_mut(image).map(std::mem::take);
        let Again { stacks, log } = again.unwrap_or_default();
        let mut events = trace.events_again(stacks);
        if log.is_full() {
            let walked = self.walk(trace, &mut events, observer, None, progress);
            self.finish(trace, &events, observer, &walked.sources, &walked.heap, 0);
            return;
        }
        observer.begin_image(trace);
        let mut replay = Replay::new(&log, &events, observer);
        replay.run(progress);
        let (observer, blocks) = replay.end();
        let mut finished = Finished {
            trace,
            events: &events,
            resolver: &mut self.resolver,
            sources: &[],
            origins: &[],
            peak_bytes: 0,
            duration_ns: 0,
        };
        observer.end_image(&mut finished, &|tell| {
            blocks.iter().for_each(|block| tell(0, block));
        });
    }

    fn walk<'t, O: Observer>(
        &mut self,
        trace: &'t Trace,
        events: &mut Events<'t>,
        observer: &mut O,
        log: Option<&mut Log>,
        mut progress: impl FnMut(),
    ) -> Walked<O::Note> {
        observer.begin_image(trace);
        self.resolver.begin_image();
        let mut image = Image {
            trace,
            observer,
            log,
            rules: &self.rules,
            rules_matched: &mut self.rules_matched,
            resolver: &mut self.resolver,
            heap: Heap::default(),
            sources: Vec::new(),
            by_stack: Vec::new(),
            other_calls: FxHashMap::default(),
            attributions: FxHashMap::default(),
            reallocs: FxHashMap::default(),
            threads: 0,
            lost_in_streams: 0,
        };
        let (mut count, mut last_time) = (0, 0);
        while events.next_run() {
            image.look_ahead(events.run());
            for event in events.run() {
                count += u64::from(is_call(&event.action));
                last_time = event.time;
                image.event(event, events);
                progress();
            }
        }
        let lost_definitions = trace
            .counters()
            .and_then(|counted| image.add_counters(counted, events));
        let called = image.sources.iter();
        image
            .heap
            .settle(called.map(|source| (source.kind, source.call)));
        Walked {
            heap: image.heap,
            sources: image.sources,
            threads: image.threads,
            lost_in_streams: image.lost_in_streams,
            count,
            last_time,
            lost_definitions,
        }
    }

    fn finish<O: Observer>(
        &mut self,
        trace: &Trace,
        events: &Events<'_>,
        observer: &mut O,
        sources: &[Source],
        heap: &Heap<O::Note>,
        duration_ns: u64,
    ) {
        let mut finished = Finished {
            trace,
            events,
            resolver: &mut self.resolver,
            sources,
            origins: heap.origins(),
            peak_bytes: heap.counters().peak_bytes,
            duration_ns,
        };
        observer.end_image(&mut finished, &|tell| {
            heap.blocks()
                .for_each(|(address, block)| tell(address, block));
        });
    }
}

/// What a second observer of an image needs.
#[derive(Default)]
pub struct Again {
    stacks: StackTable,
    log: Log,
}

/// The result of one pass over a file.
struct Walked<N> {
    heap: Heap<N>,
    sources: Vec<Source>,
    threads: u64,
    lost_in_streams: u64,
    count: u64,
    last_time: u64,
    lost_definitions: Option<Damage>,
}

impl Analysis {
    /// Attributes each source, after the wrappers are known.
    fn attribute(
        &mut self,
        trace: &Trace,
        events: &Events<'_>,
        sources: &mut [Source],
        origins: &[Origin],
    ) {
        let resolver = &mut self.resolver;
        let chains: Vec<Chain> = sources
            .iter()
            .map(|source| resolver.chain(trace, events.stacks(), source.stack))
            .collect();
        if resolver.passes_wrappers() {
            let path = |(chain, origin): (&Chain, &Origin)| Path {
                chain: chain.clone(),
                calls: origin.calls,
                bytes: origin.bytes,
            };
            let paths: Vec<Path> = chains.iter().zip(origins).map(path).collect();
            wrappers::find(&paths, resolver);
            self.wrappers.add(&paths);
        }
        for (source, chain) in sources.iter_mut().zip(&chains) {
            source.site = attribute(chain, &self.rules).site;
        }
    }
}

/// Whether `Trace::event_count` counts this event; a realloc counts at its end.
pub fn is_call(action: &Action) -> bool {
    matches!(
        action,
        Action::Alloc { .. }
            | Action::Free { .. }
            | Action::ReallocEnd { .. }
            | Action::Mark { .. }
            | Action::SystemCall { .. }
            | Action::Copy { .. }
            | Action::Sample { .. }
    )
}

/// The code of a call, and the counters that it adds to.
type Called = (u8, Option<OriginId>);

/// The log, if the observer's image has one: without a test at each event where none has.
fn log<'a, O: Observer>(log: &'a mut Option<&mut Log>) -> Option<&'a mut Log> {
    match O::LOOKS_AGAIN {
        true => log.as_deref_mut(),
        false => None,
    }
}

/// A process image while it is read.
struct Image<'a, O: Observer> {
    trace: &'a Trace,
    observer: &'a mut O,
    log: Option<&'a mut Log>,
    rules: &'a [WrapperRule],
    rules_matched: &'a mut [bool],
    resolver: &'a mut Resolver,
    heap: Heap<O::Note>,
    /// By `OriginId`.
    sources: Vec<Source>,
    /// By stack: its first kind of call, with the origin; `None` if it is not counted.
    by_stack: Vec<Option<Called>>,
    /// Further kinds of calls of a stack, which are rare.
    other_calls: FxHashMap<StackId, Vec<Called>>,
    attributions: FxHashMap<u32, Attribution>,
    /// The slot of the old block of the realloc that a thread is in.
    reallocs: FxHashMap<u32, Option<u32>>,
    threads: u64,
    lost_in_streams: u64,
}

impl<O: Observer> Image<'_, O> {
    fn look_ahead(&self, run: &[Event]) {
        let freed = run.iter().filter_map(|event| match event.action {
            Action::Free { address, .. } => Some(address),
            Action::ReallocStart { old, .. } => Some(old),
            _ => None,
        });
        self.heap.look_ahead(freed);
    }

    fn event(&mut self, event: &Event, events: &Events<'_>) {
        if let Some(log) = log::<O>(&mut self.log) {
            log.event(event);
        }
        self.observer.event(event, events);
        let at = |stack| Moment {
            time: event.time,
            thread: event.thread,
            stack,
            stacks: events.stacks(),
        };
        match event.action {
            Action::Alloc {
                call,
                address,
                size,
                stack,
                ..
            } => {
                let made = Made {
                    origin: OriginId::default(),
                    address,
                    size,
                    old: None,
                };
                self.alloc(events, at(stack), call, made);
            }
            Action::Free {
                call,
                address,
                stack,
                ..
            } => self.free(events, at(stack), call, address),
            Action::ReallocStart { old, .. } => {
                let slot = self.heap.detach(old);
                self.reallocs.insert(event.thread, slot);
            }
            Action::ReallocEnd {
                call,
                old,
                address,
                size,
                stack,
                ..
            } => {
                let slot = self.reallocs.remove(&event.thread).flatten();
                let slot = slot.or_else(|| self.heap.detach(old));
                let block = slot.map(|slot| *self.heap.block(slot));
                let made = Made {
                    origin: OriginId::default(),
                    address,
                    size,
                    old: block.as_ref(),
                };
                self.realloc(events, at(stack), call, (old, slot), made);
            }
            Action::ThreadStart => self.threads += 1,
            Action::Mark { .. }
            | Action::SystemCall { .. }
            | Action::Copy { .. }
            | Action::Sample { .. }
            | Action::Contents { .. }
            | Action::ThreadEnd => {}
            Action::Lost { calls } => {
                self.lost_in_streams = self.lost_in_streams.saturating_add(calls);
            }
        }
    }

    /// Adds the recorder's counters; returns the damage if some counters have no definition.
    fn add_counters(&mut self, counted: &trace::Counters, events: &Events<'_>) -> Option<Damage> {
        let mut left = counted.by_number.clone();
        for defined in events.counted() {
            let Some(counter) = left.remove(&defined.number) else {
                continue;
            };
            if let Some(origin) = self.origin(events, defined.call, defined.stack) {
                self.heap.add_counted(origin, &counter);
            }
        }
        let counters = self.heap.counters_mut();
        counters.frees = counted.totals.frees;
        counters.deletes = counted.totals.deletes;
        counters.failed = counted.totals.failed;
        counters.unknown_frees = counted.totals.unknown_frees;
        counters.peak_bytes = counted.peak_bytes;
        let lost = left.values().map(|counter| counter.calls);
        let lost = lost.fold(0, u64::saturating_add);
        (lost > 0).then_some(Damage {
            offset: 0,
            length: 0,
            events: Some(lost),
            cause: DamageCause::LostDefinition,
        })
    }

    fn alloc(
        &mut self,
        events: &Events<'_>,
        at: Moment<'_>,
        call: AllocCall,
        made: Made<'_, O::Note>,
    ) {
        match self.origin(events, call, at.stack) {
            Some(_) if made.address == 0 => self.heap.counters_mut().failed += 1,
            Some(origin) => self.make(at, Made { origin, ..made }),
            // A block that is not counted replaces one that was.
            None => self.replace(at, made.address),
        }
    }

    fn replace(&mut self, at: Moment<'_>, address: u64) {
        if let Some(slot) = self.heap.end_block(address) {
            self.ended(at, address, slot, End::Replaced);
        }
    }

    /// The heap released the block of this slot.
    #[inline]
    fn ended(&mut self, at: Moment<'_>, address: u64, slot: u32, how: End) {
        if let Some(log) = log::<O>(&mut self.log) {
            log.ended(slot, how);
        }
        self.observer.ended(at, address, self.heap.block(slot), how);
    }

    fn make(&mut self, at: Moment<'_>, made: Made<'_, O::Note>) {
        let source = &self.sources[made.origin.index()];
        let size = made.size.saturating_sub(source.header_bytes);
        let made = Made { size, ..made };
        let mut log = log::<O>(&mut self.log);
        let slot = self
            .heap
            .allocate(made.address, (size, made.origin), |slot, block| {
                if let Some(log) = &mut log {
                    log.ended(slot, End::Replaced);
                }
                self.observer.ended(at, made.address, block, End::Replaced);
            });
        if let Some(log) = log {
            log.made(at.stack, made.origin, size);
        }
        self.heap.set_note(slot, self.observer.made(at, &made));
    }

    fn free(&mut self, events: &Events<'_>, at: Moment<'_>, call: FreeCall, address: u64) {
        if address == 0 {
            return;
        }
        let slot = self.heap.end_block(address);
        if let Some(slot) = slot {
            self.ended(at, address, slot, End::Freed(call));
        }
        if self.counts_as_free(events, at.stack) {
            self.count_free(slot.is_some());
            if matches!(call, FreeCall::Delete | FreeCall::DeleteArray) {
                self.heap.counters_mut().deletes += 1;
            }
        }
    }

    fn count_free(&mut self, known: bool) {
        let counters = self.heap.counters_mut();
        counters.frees += 1;
        counters.unknown_frees += u64::from(!known);
    }

    fn realloc(
        &mut self,
        events: &Events<'_>,
        at: Moment<'_>,
        call: AllocCall,
        (old, slot): (u64, Option<u32>),
        made: Made<'_, O::Note>,
    ) {
        let origin = self.origin(events, call, at.stack);
        if made.address == 0 && !(made.size == 0 && old != 0) {
            if origin.is_some() {
                self.heap.counters_mut().failed += 1;
            }
            if let Some(slot) = slot.filter(|slot| !self.heap.attach(old, *slot)) {
                self.heap.release(slot);
                // The address is another block's.
                self.ended(at, 0, slot, End::Replaced);
            }
            return;
        }
        if let Some(slot) = slot {
            self.heap.release(slot);
            self.ended(at, old, slot, End::Reallocated(made.size));
        }
        let known = made.old.is_some() || old == 0;
        if made.address == 0 {
            if origin.is_some() || self.counts_as_free(events, at.stack) {
                self.count_free(known);
            }
            return;
        }
        match origin {
            Some(origin) => {
                // Size 0 frees the old block, even if the call returns a new one.
                let old = made.old.filter(|_| made.size > 0);
                let made = Made {
                    origin,
                    old,
                    ..made
                };
                self.make(at, made);
                self.heap.counters_mut().unknown_frees += u64::from(!known);
            }
            None => self.replace(at, made.address),
        }
    }

    /// Whether a call that frees a block counts as a free.
    fn counts_as_free(&mut self, events: &Events<'_>, stack: StackId) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let counted = self.attribution(events, stack).counted;
        matches!(
            counted,
            Counted::As {
                kind: WrapperKind::Frees,
                ..
            }
        )
    }

    fn attribution(&mut self, events: &Events<'_>, stack: StackId) -> Attribution {
        if let Some(attribution) = self.attributions.get(&stack.0) {
            return *attribution;
        }
        let chain = self.resolver.chain(self.trace, events.stacks(), stack);
        let attribution = attribute(&chain, self.rules);
        for (rule, matched) in self.rules.iter().zip(self.rules_matched.iter_mut()) {
            let named = |frame: &ChainFrame| {
                let function = frame.source.function.as_ref();
                function.is_some_and(|f| f.is_named(|name| rule.matches(name)))
            };
            *matched = *matched || functions(&chain).any(named);
        }
        self.attributions.insert(stack.0, attribution);
        attribution
    }

    /// The origin of an allocation; `None` if it is not counted.
    #[inline]
    fn origin(&mut self, events: &Events<'_>, call: AllocCall, stack: StackId) -> Option<OriginId> {
        match self.by_stack.get(stack.0 as usize) {
            Some(Some((known, origin))) if *known == call.code() => *origin,
            _ => self.other_origin(events, call, stack),
        }
    }

    #[inline(never)]
    fn other_origin(
        &mut self,
        events: &Events<'_>,
        call: AllocCall,
        stack: StackId,
    ) -> Option<OriginId> {
        let (place, code) = (stack.0 as usize, call.code());
        if self.by_stack.len() <= place {
            self.by_stack.resize(place + 1, None);
        }
        let first = self.by_stack[place];
        let others = self.other_calls.get(&stack).filter(|_| first.is_some());
        let mut others = others.into_iter().flatten();
        if let Some((_, origin)) = others.find(|(known, _)| *known == code) {
            return *origin;
        }
        let origin = self.new_origin(events, call, stack);
        match first {
            Some(_) => self
                .other_calls
                .entry(stack)
                .or_default()
                .push((code, origin)),
            None => self.by_stack[place] = Some((code, origin)),
        }
        origin
    }

    fn new_origin(
        &mut self,
        events: &Events<'_>,
        call: AllocCall,
        stack: StackId,
    ) -> Option<OriginId> {
        let counted = match self.rules {
            [] => Counted::AsCalled,
            _ => self.attribution(events, stack).counted,
        };
        let (kind, kind_name, header_bytes) = match counted {
            Counted::AsCalled => (Kind::of(call), call.name(), 0),
            Counted::As {
                kind: WrapperKind::Allocates(kind),
                header_bytes,
            } => (kind, kind.name(), header_bytes),
            Counted::As {
                kind: WrapperKind::Frees,
                ..
            }
            | Counted::Not => return None,
        };
        let origin = self.heap.add_origin();
        self.sources.push(Source {
            stack,
            call,
            kind,
            kind_name,
            header_bytes,
            site: None,
        });
        Some(origin)
    }
}
