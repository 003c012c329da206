//! The interface for analyses beyond the counters: each block's allocation and deallocation, in order
//! of time.
//!
//! An observer keeps a note with each live block, so it needs no table of addresses of its own.

use larder_trace::{Event, Events, FreeCall, StackId, StackTable, Trace};

use super::attribute::Attribution;
use super::chain::Chain;
use super::heap::{Block, Origin, OriginId};
use super::image::Source;
use super::resolve::Resolver;

/// The time, thread and stack of an event.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// In ticks of the trace.
    pub time: u64,
    /// The thread's id in the system.
    pub thread: u32,
    /// The stack of the call.
    pub stack: StackId,
    pub stacks: &'a StackTable,
}

/// A requested block.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a, N> {
    pub origin: OriginId,
    pub address: u64,
    /// The counted size: without a wrapper's header.
    pub size: u64,
    /// The old block of a realloc; `None` if its size was 0, because that freed it.
    pub old: Option<&'a Block<N>>,
}

impl<'a, N> Made<'a, N> {
    /// The same with the note of another observer.
    fn with<M>(&self, old: Option<&'a Block<M>>) -> Made<'a, M> {
        Made {
            origin: self.origin,
            address: self.address,
            size: self.size,
            old,
        }
    }
}

/// How a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Freed(FreeCall),
    /// Realloc to this size; 0 freed the block.
    Reallocated(u64),
    /// The free was not recorded: the address was returned again.
    Replaced,
}

/// Calls back for each block that is live at the end, with its address.
pub type Live<'a, N> = dyn Fn(&mut dyn FnMut(u64, &Block<N>)) + 'a;

/// The events of an observer. Every method does nothing by default.
pub trait Observer {
    /// Kept with each live block.
    type Note: Copy + Default;

    /// Whether counters are enough, without each call.
    const WILL_DO_WITH_COUNTERS: bool = false;

    /// Whether the sites keep all their stacks and not only the heaviest.
    const KEEPS_STACKS: bool = false;

    /// Whether `Analysis::again` will be called for each image.
    const LOOKS_AGAIN: bool = false;

    fn begin_image(&mut self, _trace: &Trace) {}

    /// Any event, before its effects on blocks.
    fn event(&mut self, _event: &Event, _events: &Events<'_>) {}

    /// A block was allocated. For a realloc, `ended` was called for the old block before.
    fn made(&mut self, _moment: Moment<'_>, _made: &Made<'_, Self::Note>) -> Self::Note {
        Self::Note::default()
    }

    /// A block was freed.
    fn ended(&mut self, _moment: Moment<'_>, _address: u64, _block: &Block<Self::Note>, _how: End) {
    }

    /// The image was read to its end; `live` lists the live blocks.
    fn end_image(&mut self, _image: &mut Finished<'_, '_>, _live: &Live<'_, Self::Note>) {}
}

/// Sees nothing.
impl Observer for () {
    type Note = ();
    const WILL_DO_WITH_COUNTERS: bool = true;
}

/// Does nothing, but lets each site keep every stack.
pub struct KeepStacks;

impl Observer for KeepStacks {
    type Note = ();
    const WILL_DO_WITH_COUNTERS: bool = true;
    const KEEPS_STACKS: bool = true;
}

/// Two observers in one pass.
pub struct Both<A, B>(pub A, pub B);

fn first<A: Copy, B>(block: &Block<(A, B)>) -> Block<A> {
    Block {
        size: block.size,
        origin: block.origin,
        note: block.note.0,
    }
}

fn second<A, B: Copy>(block: &Block<(A, B)>) -> Block<B> {
    Block {
        size: block.size,
        origin: block.origin,
        note: block.note.1,
    }
}

impl<A: Observer, B: Observer> Observer for Both<A, B> {
    type Note = (A::Note, B::Note);
    const WILL_DO_WITH_COUNTERS: bool = A::WILL_DO_WITH_COUNTERS && B::WILL_DO_WITH_COUNTERS;
    const KEEPS_STACKS: bool = A::KEEPS_STACKS || B::KEEPS_STACKS;
    const LOOKS_AGAIN: bool = A::LOOKS_AGAIN || B::LOOKS_AGAIN;

    fn begin_image(&mut self, trace: &Trace) {
        self.0.begin_image(trace);
        self.1.begin_image(trace);
    }

    fn event(&mut self, event: &Event, events: &Events<'_>) {
        self.0.event(event, events);
        self.1.event(event, events);
    }

    fn made(&mut self, moment: Moment<'_>, made: &Made<'_, Self::Note>) -> Self::Note {
        let (old_a, old_b) = (made.old.map(first), made.old.map(second));
        let (a, b) = (made.with(old_a.as_ref()), made.with(old_b.as_ref()));
        (self.0.made(moment, &a), self.1.made(moment, &b))
    }

    fn ended(&mut self, moment: Moment<'_>, address: u64, block: &Block<Self::Note>, how: End) {
        self.0.ended(moment, address, &first(block), how);
        self.1.ended(moment, address, &second(block), how);
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, live: &Live<'_, Self::Note>) {
        self.0.end_image(image, &|tell| {
            live(&mut |address, block| tell(address, &first(block)));
        });
        self.1.end_image(image, &|tell| {
            live(&mut |address, block| tell(address, &second(block)));
        });
    }
}

/// Of a constant text.
const MOST_TEXT_BYTES: usize = 256;

/// An image that was read to its end.
pub struct Finished<'a, 't> {
    pub trace: &'a Trace,
    pub events: &'a Events<'t>,
    pub resolver: &'a mut Resolver,
    /// The sources of the counters, by origin; `origins` has the sums in the same order.
    pub sources: &'a [Source],
    pub origins: &'a [Origin],
    pub peak_bytes: u64,
    pub duration_ns: u64,
}

impl Finished<'_, '_> {
    /// The functions of a stack, innermost first.
    pub fn chain(&mut self, stack: StackId) -> Chain {
        let stacks = self.events.stacks();
        self.resolver.chain(self.trace, stacks, stack)
    }

    /// A constant text of the program, without the zero that ends it, from the file that it was loaded from.
    /// `None` if it is longer than `MOST_TEXT_BYTES`, no UTF-8, or in no file that can be read.
    pub fn text(&mut self, address: u64) -> Option<String> {
        let modules = self.trace.modules().iter();
        let mut covering = modules.filter(|module| (module.start..module.end).contains(&address));
        // Of modules that were at one place after another it is unknown which one it was.
        let module = covering.next().filter(|_| covering.next().is_none())?;
        let in_file = address.wrapping_sub(module.bias);
        let text = self.resolver.data(self.trace, module, in_file)?;
        let text = text.get(..MOST_TEXT_BYTES).unwrap_or(text);
        let end = text.iter().position(|byte| *byte == 0)?;
        String::from_utf8(text[..end].to_vec()).ok()
    }

    /// The functions and the site of a stack that is not an origin's.
    pub fn attribute(&mut self, stack: StackId) -> (Chain, Attribution) {
        let chain = self.chain(stack);
        let attribution = super::attribute::attribute(&chain, &[]);
        (chain, attribution)
    }
}
