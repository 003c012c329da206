//! The lines of a finding under *why*. Each claim is about the blocks of certain origins, and the whole
//! trace proves or refutes it, over all threads, reallocs and callers.
//!
//! Every figure is a count, and every sentence is made from these figures. `claims_replayed` checks each
//! claim against random programs by brute force.

use larder_base::number::{counted, grouped, percent};
use larder_trace::StackId;

use super::prove::Together;

/// Which buffers are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of the process.
    Process,
    /// Those that one thread allocated.
    Thread,
    /// Those of one call of the function in which they are freed.
    Call,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// Every buffer that was allocated at one of these origins is freed before the call with that stack,
    /// in which it was allocated, returns.
    EndsWithin {
        calls: Vec<(usize, StackId)>,
        /// The function that allocates them, if it is not the owner.
        maker: Option<String>,
        owner: String,
    },
    /// Up to `most` buffers of these origins live at once, and none has more than `largest_bytes`.
    AtOnce {
        origins: Vec<(usize, Option<StackId>)>,
        scope: Scope,
        most: u64,
        begun: u64,
        largest_bytes: u64,
        equal: bool,
    },
    /// `counted` blocks of `second` or more are allocated and freed with a block of `first` of their own.
    Together {
        first: Vec<usize>,
        second: Vec<usize>,
        first_shown: String,
        blocks: u64,
        counted: Together,
    },
    /// Blocks of one size that are allocated one right after another, and freed in a row.
    Rows {
        origins: Vec<usize>,
        blocks: u64,
        smallest_bytes: u64,
        largest_bytes: u64,
        followers: u64,
        ended: u64,
        live: u64,
    },
    /// Blocks that another thread frees.
    Foreign {
        origins: Vec<usize>,
        foreign: u64,
        freed: u64,
    },
    /// Blocks live at the end.
    Left {
        origins: Vec<usize>,
        blocks: u64,
        bytes: u64,
        made: u64,
    },
    /// Of the blocks live at the end, those that no pointer leads to.
    Lost {
        origins: Vec<usize>,
        blocks: u64,
        bytes: u64,
        live: u64,
    },
    /// Live bytes that rise in every part of the run.
    Rises {
        origins: Vec<usize>,
        halfway_bytes: u64,
        end_bytes: u64,
    },
    /// Buffers that were enlarged: by realloc, or by a larger block that replaced a smaller one.
    Grew {
        origins: Vec<usize>,
        buffers: u64,
        steps: u64,
        outgrown_bytes: u64,
    },
    /// Final sizes of these origins' buffers, grown or not: pairs of a percentage and the size that covers
    /// it.
    Ends {
        origins: Vec<usize>,
        at_most: [(u64, u64); 3],
        largest_bytes: u64,
    },
    /// Blocks with the same contents as another block that lived at the same time: `blocks` or more, `most`
    /// of them at once.
    Equal {
        origins: Vec<usize>,
        made: u64,
        blocks: u64,
        most: u64,
        most_bytes: u64,
    },
    /// Of these, those allocated after an equal one of `firsts`, and those that it outlived.
    Source {
        origins: Vec<usize>,
        firsts: Vec<usize>,
        shown: String,
        blocks: u64,
        outlived: u64,
    },
    /// Blocks of calloc that were checked at their end, none with a zero left.
    Overwritten {
        origins: Vec<usize>,
        seen: u64,
        made: u64,
        mean_bytes: u64,
        words: bool,
    },
    /// All buffers were freed, in `sweeps`: none was allocated from the first free of a sweep until all
    /// were freed.
    Swept {
        origins: Vec<usize>,
        buffers: u64,
        sweeps: u64,
    },
    /// Buffers that were freed, of those allocated.
    Freed {
        origins: Vec<usize>,
        freed: u64,
        begun: u64,
    },
    /// A statement that needs no proof: a type, a name, a sum of the counters.
    Note(String),
}

impl From<String> for Claim {
    fn from(text: String) -> Self {
        Claim::Note(text)
    }
}

impl Claim {
    pub fn text(&self) -> String {
        match self {
            Claim::EndsWithin { .. }
            | Claim::AtOnce { .. }
            | Claim::Foreign { .. }
            | Claim::Swept { .. }
            | Claim::Freed { .. } => self.lives(),
            Claim::Left { .. } | Claim::Lost { .. } => self.left(),
            Claim::Rises { .. } | Claim::Grew { .. } | Claim::Ends { .. } => self.growth(),
            Claim::Equal { .. } | Claim::Source { .. } | Claim::Overwritten { .. } => {
                self.contents()
            }
            Claim::Together { .. } => self.together(),
            Claim::Rows { .. } => self.rows(),
            Claim::Note(text) => text.clone(),
        }
    }

    /// How long blocks live, and which thread or function frees them.
    fn lives(&self) -> String {
        match self {
            Claim::EndsWithin { maker, owner, .. } => match maker {
                Some(maker) => {
                    format!("{maker} allocates each block, and it is freed before {owner} returns")
                }
                None => format!("every block is freed before {owner} returns"),
            },
            Claim::AtOnce {
                scope,
                most,
                begun,
                largest_bytes,
                equal,
                ..
            } => {
                let most = match most {
                    1 => "one block at a time".to_owned(),
                    most => format!("up to {} blocks at once", grouped(*most)),
                };
                let scope = match scope {
                    Scope::Process => String::new(),
                    Scope::Thread => " in each thread".to_owned(),
                    Scope::Call => " in each call".to_owned(),
                };
                let bytes = counted(*largest_bytes, "byte");
                let bytes = match equal {
                    true => format!("each of {bytes}"),
                    false => format!("each up to {bytes}"),
                };
                format!("{most}{scope}, of {} in all, {bytes}", grouped(*begun))
            }
            Claim::Foreign { foreign, freed, .. } => format!(
                "{}, {:.0} % of those freed, were freed by a thread that did not allocate them",
                counted(*foreign, "block"),
                percent(*foreign, *freed)
            ),
            Claim::Swept {
                buffers, sweeps, ..
            } => format!(
                "all {} were freed in {}: none was allocated from the first free of a sweep to its last",
                counted(*buffers, "buffer"),
                counted(*sweeps, "sweep")
            ),
            Claim::Freed { freed, begun, .. } => format!(
                "{} of its {} were freed",
                grouped(*freed),
                counted(*begun, "buffer")
            ),
            _ => String::new(),
        }
    }

    /// The blocks live at the end.
    fn left(&self) -> String {
        match self {
            Claim::Left {
                blocks,
                bytes,
                made,
                ..
            } => format!(
                "{} of {} are live at the end, {}",
                grouped(*blocks),
                counted(*made, "block"),
                counted(*bytes, "byte")
            ),
            Claim::Lost {
                blocks,
                bytes,
                live,
                ..
            } => format!(
                "{} of {} live at the end {} unreachable: {}",
                grouped(*blocks),
                counted(*live, "block"),
                if *blocks == 1 { "was" } else { "were" },
                counted(*bytes, "byte")
            ),
            _ => String::new(),
        }
    }

    /// How sizes grow.
    fn growth(&self) -> String {
        match self {
            Claim::Rises {
                halfway_bytes,
                end_bytes,
                ..
            } => format!(
                "live bytes rose in nearly every sixteenth of the run and fell in none: {} halfway, {} \
                 at the end",
                grouped(*halfway_bytes),
                grouped(*end_bytes)
            ),
            Claim::Grew {
                buffers,
                steps,
                outgrown_bytes,
                ..
            } => format!(
                "{} grew {} times, {:.1} each, and outgrew {}",
                counted(*buffers, "buffer"),
                grouped(*steps),
                *steps as f64 / *buffers as f64,
                counted(*outgrown_bytes, "byte")
            ),
            Claim::Ends {
                at_most: [(half, half_bytes), (most, most_bytes), (all, all_bytes)],
                largest_bytes,
                ..
            } => format!(
                "final sizes: {half} % up to {} bytes, {most} % up to {}, {all} % up to {}, all up to {}",
                grouped(*half_bytes),
                grouped(*most_bytes),
                grouped(*all_bytes),
                grouped(*largest_bytes)
            ),
            _ => String::new(),
        }
    }

    /// Contents.
    fn contents(&self) -> String {
        match self {
            Claim::Equal {
                made,
                blocks,
                most,
                most_bytes,
                ..
            } => format!(
                "{} its {} had the same contents as another live block; {} or more of {} at once",
                match blocks == made {
                    true => "all of".to_owned(),
                    false => format!("{} or more of", grouped(*blocks)),
                },
                counted(*made, "block"),
                grouped(*most),
                counted(*most_bytes, "byte")
            ),
            Claim::Source {
                shown,
                blocks,
                outlived,
                ..
            } => format!(
                "{} came after an equal one that {shown} allocated, and {} were freed no later than it",
                grouped(*blocks),
                match outlived == blocks {
                    true => "all".to_owned(),
                    false => grouped(*outlived),
                }
            ),
            Claim::Overwritten {
                seen,
                made,
                mean_bytes,
                words,
                ..
            } => format!(
                "{} of its {} of {} on average were checked at their end, and none has a zero {} left",
                grouped(*seen),
                counted(*made, "block"),
                counted(*mean_bytes, "byte"),
                if *words { "word" } else { "element" }
            ),
            _ => String::new(),
        }
    }

    fn rows(&self) -> String {
        let Claim::Rows {
            blocks,
            smallest_bytes,
            largest_bytes,
            followers,
            ended,
            live,
            ..
        } = self
        else {
            return String::new();
        };
        let left = match live {
            0 => String::new(),
            live => format!("; {} are live at the end next to it", grouped(*live)),
        };
        let sizes = match smallest_bytes == largest_bytes {
            true => grouped(*largest_bytes),
            false => format!(
                "{} to {}",
                grouped(*smallest_bytes),
                grouped(*largest_bytes)
            ),
        };
        format!(
            "of {} of {sizes} bytes, {} were allocated right after another of the same size, and {} \
             were freed right next to it{left}",
            counted(*blocks, "block"),
            grouped(*followers),
            grouped(*ended)
        )
    }

    fn together(&self) -> String {
        let Claim::Together {
            first_shown,
            blocks,
            counted: together,
            ..
        } = self
        else {
            return String::new();
        };
        let within = |between: u64, next: &str, what: &str| match between {
            0 => next.to_owned(),
            between => format!("up to {} {what}", grouped(between + 1)),
        };
        // A first counts with one of its seconds only.
        let more = match together.made < *blocks {
            true => " or more",
            false => "",
        };
        let mut text = format!(
            "{}{more} of {} allocated {} one of {first_shown}",
            grouped(together.made),
            counted(*blocks, "block"),
            within(together.between, "right after", "allocations after"),
        );
        if together.ended > 0 {
            text += &format!(
                ", {} freed {} it",
                grouped(together.ended),
                within(together.frees_between, "right next to", "frees from")
            );
            if together.first_before > 0 {
                text += &format!(" ({} after it)", grouped(together.first_before));
            }
        }
        if together.live > 0 {
            text += &format!(", {} are live with it at the end", grouped(together.live));
        }
        text
    }
}
