//! What a finding says under *why*: each claim is about the blocks of certain origins, and can be
//! proven or refuted by the whole trace, over all threads, reallocs and callers.
//!
//! The figures come from counts, and the sentence from the figures: nothing is said that was not
//! counted. `claims_replayed` holds each against a replay of random programs by brute force.

use larder_base::number::{counted, grouped, percent};
use larder_trace::StackId;

use super::prove::Together;

/// Whose buffers are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of the process.
    Process,
    /// Those that one thread began.
    Thread,
    /// Those of one call of the function that they end in.
    Call,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// Every buffer that began at one of these origins is freed before the call with that stack, in
    /// which it began, returns.
    EndsWithin {
        calls: Vec<(usize, StackId)>,
        /// Who makes them, if that is not the function itself.
        maker: Option<String>,
        owner: String,
    },
    /// So many of these origins' buffers live at once, and none holds more than that.
    AtOnce {
        origins: Vec<(usize, Option<StackId>)>,
        scope: Scope,
        most: u64,
        begun: u64,
        largest_bytes: u64,
        equal: bool,
    },
    /// Blocks of `second` come and go with one of `first`, each with one of its own: at least so many.
    Together {
        first: Vec<usize>,
        second: Vec<usize>,
        first_shown: String,
        blocks: u64,
        counted: Together,
    },
    /// Blocks that are made one right after another of the same size, and end so.
    Rows {
        origins: Vec<usize>,
        blocks: u64,
        smallest_bytes: u64,
        largest_bytes: u64,
        followers: u64,
        ended: u64,
        live: u64,
    },
    /// Blocks that end on another thread.
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
    /// Of the blocks live at the end, those that nothing led to any more.
    Lost {
        origins: Vec<usize>,
        blocks: u64,
        bytes: u64,
        live: u64,
    },
    /// More is live in every part of the run than in the one before.
    Rises {
        origins: Vec<usize>,
        halfway_bytes: u64,
        end_bytes: u64,
    },
    /// Buffers that were made larger: by realloc, or by a larger block that took the place of a smaller.
    Grew {
        origins: Vec<usize>,
        buffers: u64,
        steps: u64,
        outgrown_bytes: u64,
    },
    /// What these origins' buffers hold at their end, grown or not: so many in a hundred of them at
    /// most that.
    Ends {
        origins: Vec<usize>,
        at_most: [(u64, u64); 3],
        largest_bytes: u64,
    },
    /// Blocks whose bytes, at their end, another block had that lived at the same time: at least so
    /// many, `most` of them at once.
    Equal {
        origins: Vec<usize>,
        made: u64,
        blocks: u64,
        most: u64,
        most_bytes: u64,
    },
    /// Of these, those that came after an equal one of `firsts`; and those that it outlived.
    Source {
        origins: Vec<usize>,
        firsts: Vec<usize>,
        shown: String,
        blocks: u64,
        outlived: u64,
    },
    /// Blocks of calloc that were seen at their end, none with a zero left.
    Overwritten {
        origins: Vec<usize>,
        seen: u64,
        made: u64,
        mean_bytes: u64,
        words: bool,
    },
    /// Buffers that were freed, of those begun.
    Freed {
        origins: Vec<usize>,
        freed: u64,
        begun: u64,
    },
    /// What needs no proof of its own: a type, a name, a sum of the counters.
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

    /// How long blocks live, and who ends them.
    fn lives(&self) -> String {
        match self {
            Claim::EndsWithin { maker, owner, .. } => match maker {
                Some(maker) => {
                    format!("{maker} makes each block, and it is freed before {owner} returns")
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
                    most => format!("at most {} blocks at once", grouped(*most)),
                };
                let scope = match scope {
                    Scope::Process => String::new(),
                    Scope::Thread => " in each thread".to_owned(),
                    Scope::Call => " in each call".to_owned(),
                };
                let bytes = counted(*largest_bytes, "byte");
                let bytes = match equal {
                    true => format!("each of {bytes}"),
                    false => format!("none above {bytes}"),
                };
                format!("{most}{scope}, of {} in all, {bytes}", grouped(*begun))
            }
            Claim::Foreign { foreign, freed, .. } => format!(
                "{}, {:.0} % of those freed, ended on another thread than they were made on",
                counted(*foreign, "block"),
                percent(*foreign, *freed)
            ),
            Claim::Freed { freed, begun, .. } => format!(
                "{} of its {} were freed",
                grouped(*freed),
                counted(*begun, "buffer")
            ),
            _ => String::new(),
        }
    }

    /// What lives at the end.
    fn left(&self) -> String {
        match self {
            Claim::Left {
                blocks,
                bytes,
                made,
                ..
            } => format!(
                "{} of {} live at the end, {}",
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
                "{} of {} that {} live at the end could not be reached any more: {}",
                grouped(*blocks),
                counted(*live, "block"),
                if *live == 1 { "was" } else { "were" },
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
                "more was live in nearly every sixteenth of the run than in the one before, and in \
                 none less: {} bytes halfway, {} at the end",
                grouped(*halfway_bytes),
                grouped(*end_bytes)
            ),
            Claim::Grew {
                buffers,
                steps,
                outgrown_bytes,
                ..
            } => format!(
                "{} grew {} times, {:.1} each, and gave up {} on the way",
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
                "at their end {half} % have at most {} bytes, {most} % {}, {all} % {}, all {}",
                grouped(*half_bytes),
                grouped(*most_bytes),
                grouped(*all_bytes),
                grouped(*largest_bytes)
            ),
            _ => String::new(),
        }
    }

    /// What blocks hold.
    fn contents(&self) -> String {
        match self {
            Claim::Equal {
                made,
                blocks,
                most,
                most_bytes,
                ..
            } => format!(
                "{} its {} held the bytes of another that was live; {} or more of {} at once",
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
                "{} came after an equal one that {shown} made, and {} ended no later than it",
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
                "none of {} of its {} of {} on average has a zero {} left at the end",
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
            live => format!("; {} live at the end beside it", grouped(*live)),
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
            "of {} of {sizes} bytes {} were made right after another of the same size, and \
             {} ended right beside it{left}",
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
        let within = |between: u64, what: &str| match between {
            0 => "right".to_owned(),
            between => format!("at most {} {what}", grouped(between + 1)),
        };
        // Where a first has several seconds, each is counted with one of them.
        let more = match together.made < *blocks {
            true => " or more",
            false => "",
        };
        let mut text = format!(
            "{}{more} of {} made {} after one of {first_shown}",
            grouped(together.made),
            counted(*blocks, "block"),
            within(together.between, "allocations"),
        );
        if together.ended > 0 {
            text += &format!(
                ", {} ended {} beside it",
                grouped(together.ended),
                within(together.frees_between, "frees")
            );
            if together.first_before > 0 {
                text += &format!(" ({} after it)", grouped(together.first_before));
            }
        }
        if together.live > 0 {
            text += &format!(", {} live with it at the end", grouped(together.live));
        }
        text
    }
}
