//! Finds the site that is charged for an allocation, by a walk of its stack from the allocator outward;
//! with `--wrapper` rules, also whether the call is counted, and as what.

use super::chain::Chain;
use super::plumbing::ModuleRole;
use super::resolve::ChainFrame;
use super::wrapper::{WrapperKind, WrapperRule};
use crate::symbols::SourceFrame;

/// How a call from one stack is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Without wrapper rules: as the function that was called.
    AsCalled,
    /// The call came through a wrapper.
    As {
        kind: WrapperKind,
        header_bytes: u64,
    },
    /// The call came through no wrapper.
    Not,
}

/// The site of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribution {
    pub counted: Counted,
    /// The charged frame, as an index over all functions of the chain from the innermost; `None` if the
    /// stack is empty.
    pub site: Option<usize>,
}

/// All functions of a chain, innermost first.
pub fn functions(chain: &Chain) -> impl Iterator<Item = &ChainFrame> {
    chain.iter().flat_map(|frames| frames.iter())
}

pub fn attribute(chain: &Chain, rules: &[WrapperRule]) -> Attribution {
    if rules.is_empty() {
        return Attribution {
            counted: Counted::AsCalled,
            site: find_site(chain, None),
        };
    }
    let frames: Vec<&ChainFrame> = functions(chain).collect();
    match find_wrapper(&frames, rules) {
        Some((outermost, rule)) => {
            let site = find_site(chain, Some(outermost + 1)).or(Some(outermost));
            let counted = Counted::As {
                kind: rule.kind,
                header_bytes: rule.header_bytes,
            };
            Attribution { counted, site }
        }
        None => Attribution {
            counted: Counted::Not,
            site: None,
        },
    }
}

/// The innermost frame with a line that is not passed over. If there is none, the innermost one, named
/// or not, because its caller does not decide what it allocates. If all are passed over, the outermost
/// wrapper, or else the innermost that is not of the malloc family. Frames before `begin` do not count; `None`: those
/// before the one that formats the text in which the allocation makes room.
fn find_site(chain: &Chain, begin: Option<usize>) -> Option<usize> {
    let from = begin.unwrap_or(0);
    let frames = || functions(chain).enumerate().skip(from);
    let (mut with_line, mut innermost) = (None, None);
    // One pass: most stacks have no text, and many no line.
    let walked = frames().try_for_each(|(index, frame)| {
        if begin.is_none() && frame.writes_text {
            return Err(index);
        }
        if !frame.is_passed_over() {
            innermost.get_or_insert(index);
            if frame.source.line.is_some() {
                with_line.get_or_insert(index);
            }
        }
        Ok(())
    });
    if let Err(writes) = walked {
        return find_site(chain, Some(formatting(chain, writes)));
    }
    let all = |wanted: fn(&ChainFrame) -> bool| {
        frames().filter_map(move |(index, frame)| wanted(frame).then_some(index))
    };
    with_line
        .or(innermost)
        .or_else(|| all(|frame| frame.wrapper.get()).last())
        .or_else(|| all(|frame| !frame.family).next())
        .or_else(|| all(|_| true).next())
}

/// Whether it is the function by which `fmt` functions write to a text.
pub fn writes_text(frame: &SourceFrame) -> bool {
    const WRITES: &[&str] = &[
        "alloc::string::String as core::fmt::Write>::write_str",
        "alloc::string::String as core::fmt::Write>::write_char",
    ];
    let function = frame.function.as_ref();
    function.is_some_and(|function| WRITES.iter().any(|part| function.name.contains(part)))
}

/// The frame that formats into a text of its own, if the allocation makes room in that text, to which the frame
/// `writes` writes; else the innermost. In between are `fmt` functions, which write where their caller says.
fn formatting(chain: &Chain, writes: usize) -> usize {
    const BEGINS: &[&str] = &[
        "core::fmt::Write::write_fmt",
        "core::fmt::Write>::write_fmt",
        "alloc::fmt::format",
        "alloc::string::ToString>::to_string",
    ];
    let name = |frame: &&ChainFrame| frame.source.function.as_ref().map(|f| f.name.clone());
    let is = |frame: &&ChainFrame, parts: &[&str]| {
        name(frame).is_some_and(|name| parts.iter().any(|part| name.contains(part)))
    };
    let frames: Vec<&ChainFrame> = functions(chain).collect();
    // A function may also write to a text of its own.
    let by_formatter = frames.get(writes + 1).is_some_and(|frame| {
        name(frame).is_some_and(|name| name.contains("core::fmt::") && frame.plumbing)
    });
    let begins = |frame: &ChainFrame| is(&frame, BEGINS) && !is(&frame, &["Formatter"]);
    let begins = || (writes..frames.len()).find(|index| begins(frames[*index]));
    by_formatter.then(begins).flatten().unwrap_or(0)
}

/// The outermost of the wrappers that the call came through directly, and its rule.
///
/// Between the allocator and the innermost wrapper there may be only the malloc family and the
/// wrapper's own module: allocations of a library that the wrapper calls are the library's.
fn find_wrapper<'r>(
    frames: &[&ChainFrame],
    rules: &'r [WrapperRule],
) -> Option<(usize, &'r WrapperRule)> {
    let rule_of = |frame: &ChainFrame| {
        let function = frame.source.function.as_ref()?;
        rules
            .iter()
            .find(|rule| function.is_named(|name| rule.matches(name)))
    };
    let innermost = frames
        .iter()
        .position(|frame| frame.module.role != ModuleRole::Larder && rule_of(frame).is_some())?;
    let module = &frames[innermost].module;
    let direct = frames[..innermost]
        .iter()
        .all(|frame| frame.family || frame.module.path == module.path);
    if !direct {
        return None;
    }
    frames[innermost..]
        .iter()
        .enumerate()
        .map_while(|(index, frame)| Some((innermost + index, rule_of(frame)?)))
        .last()
}

#[cfg(test)]
mod tests {
    use super::super::family::Kind;
    use super::super::plumbing;
    use super::super::resolve::{Language, ModuleLabel};
    use super::*;
    use crate::symbols::FunctionName;
    use std::cell::{Cell, OnceCell};
    use std::rc::Rc;

    /// `module!function:line`, line 0 for none, function `?` for none.
    fn chain(frames: &[&str]) -> Chain {
        frames
            .iter()
            .map(|text| {
                let (module, rest) = text.split_once('!').unwrap();
                let (function, line) = rest.rsplit_once(':').unwrap();
                let line: u32 = line.parse().unwrap();
                let source = SourceFrame {
                    function: (function != "?").then(|| FunctionName::new(function, None)),
                    file: match (module, line) {
                        (_, 0) => None,
                        ("std", _) => Some("/rustc/1/library/x.rs".into()),
                        _ => Some("/src/x.c".into()),
                    },
                    line: (line > 0).then_some(line),
                    inlined: false,
                };
                let role = ModuleRole::of(module);
                Rc::from(vec![ChainFrame {
                    family: plumbing::is_family(role, &source),
                    plumbing: plumbing::is_plumbing(role, &source),
                    wrapper: Cell::new(plumbing::is_known_wrapper(&source)),
                    writes_text: writes_text(&source),
                    container: OnceCell::new(),
                    source,
                    module: Rc::new(ModuleLabel {
                        path: module.into(),
                        name: module.into(),
                        build_id: Vec::new(),
                        role,
                        language: Language::Native,
                    }),
                    address: 0,
                }])
            })
            .collect()
    }

    fn site(frames: &[&str]) -> Option<usize> {
        attribute(&chain(frames), &[]).site
    }

    #[test]
    fn the_innermost_line_of_the_program_is_charged() {
        assert_eq!(
            site(&["prog!push:7", "prog!main:9", "libc.so.6!start:0"]),
            Some(0)
        );
        assert_eq!(site(&["libstdc++.so.6!_Znwm:0", "prog!main:9"]), Some(1));
        assert_eq!(site(&["libc.so.6!fopen:0", "prog!main:9"]), Some(1));
    }

    #[test]
    fn a_line_beats_a_nearer_name_and_nothing_else_does() {
        assert_eq!(
            site(&["libx.so!?:0", "libx.so!parse:0", "prog!main:9"]),
            Some(2)
        );
        assert_eq!(
            site(&["libx.so!?:0", "libx.so!parse:0", "prog!?:0"]),
            Some(0)
        );
        assert_eq!(site(&["libx.so!?:0", "prog!?:0"]), Some(0));
    }

    #[test]
    fn callers_of_wrappers_are_charged() {
        assert_eq!(
            site(&["prog!xmalloc:3", "prog!xstrdup:5", "prog!main:9"]),
            Some(2)
        );
        assert_eq!(site(&["libx.so!xmalloc:0", "libx.so!xstrdup:0"]), Some(1));
    }

    /// It grows within `fmt`; a text that a `fmt` function makes is that function's.
    #[test]
    fn the_line_that_formats_is_charged_for_the_text() {
        let grows = "std!<alloc::string::String as core::fmt::Write>::write_str:1";
        let formatter = [
            "std!<core::fmt::Formatter>::write_fmt:2",
            "prog!<P as core::fmt::Display>::fmt:3",
        ];
        let write = "std!core::fmt::write:4";
        let outer = ["std!alloc::fmt::format:5", "prog!name:6", "prog!main:7"];
        let through = |inner: &[&'static str]| {
            let frames = [&[grows][..], inner, &[write], &outer];
            site(&frames.concat())
        };
        assert_eq!(through(&formatter), Some(5));
        let own = [
            "std!core::fmt::Write::write_fmt:2",
            "prog!<P as core::fmt::Display>::fmt:3",
        ];
        assert_eq!(through(&own), Some(2));
        assert_eq!(through(&formatter[1..]), Some(1), "not by a formatter");
        let sink = [&[grows][..], &formatter, &[write, "prog!main:7"]];
        assert_eq!(site(&sink.concat()), Some(2), "into no text");
    }

    #[test]
    fn where_all_is_plumbing_the_first_beyond_the_family_is_charged() {
        assert_eq!(
            site(&["libc.so.6!strdup:0", "ld-linux.so!dl_init:0"]),
            Some(1)
        );
        assert_eq!(site(&["libc.so.6!malloc:0"]), Some(0));
        assert_eq!(site(&[]), None);
    }

    fn rules() -> Vec<WrapperRule> {
        ["my_malloc=malloc", "my_strdup=strdup", "my_free=free"]
            .iter()
            .map(|rule| WrapperRule::parse(rule).unwrap())
            .collect()
    }

    fn counted(kind: WrapperKind) -> Counted {
        Counted::As {
            kind,
            header_bytes: 0,
        }
    }

    #[test]
    fn a_wrapper_is_counted_and_its_caller_charged() {
        let stack = chain(&[
            "prog!helper:1",
            "prog!my_malloc:2",
            "prog!work:3",
            "prog!main:4",
        ]);
        let found = attribute(&stack, &rules());
        assert_eq!(found.counted, counted(WrapperKind::Allocates(Kind::Malloc)));
        assert_eq!(found.site, Some(2));
    }

    #[test]
    fn of_nested_wrappers_the_outermost_counts() {
        let stack = chain(&["prog!my_malloc:1", "prog!my_strdup:2", "prog!main:4"]);
        let found = attribute(&stack, &rules());
        assert_eq!(found.counted, counted(WrapperKind::Allocates(Kind::Strdup)));
        assert_eq!(found.site, Some(2));
    }

    #[test]
    fn what_a_library_allocates_below_a_wrapper_is_not_the_wrappers() {
        let stack = chain(&["libc.so.6!fwrite:0", "prog!my_malloc:2", "prog!main:4"]);
        assert_eq!(attribute(&stack, &rules()).counted, Counted::Not);
        assert_eq!(
            attribute(&chain(&["prog!main:4"]), &rules()).counted,
            Counted::Not
        );
    }
}
