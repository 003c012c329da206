//! Reads heap profiles in text form: Larder's, gperftools' (`heap profile:`, all objects or sampled)
//! and jemalloc's (`heap_v2/`).
//!
//! The input may be hostile: a line that cannot be read is reported and left out. Time and memory grow
//! with the input.

use super::heap::{
    Damage, Estimate, Figures, HeapProfile, LeakCheck, Mapping, Origin, ProfiledStack,
};
use super::interval::Spread;
use larder_base::order;

/// Why a file cannot be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    #[error("is empty: write the profile again")]
    Empty,
    /// By gzip, like pprof's protocol buffers.
    #[error("is compressed, as pprof's own profiles are: read it with pprof")]
    Compressed,
    #[error("is a heap profile of version {0}, and this tool reads version 1: use a newer larder")]
    Newer(u64),
    /// In this line, from 1.
    #[error(
        "line {0}: no heap profile begins so: name one that Larder (LARDER_PROFILE=FILE), gperftools \
         or jemalloc has written; of a trace: larder report"
    )]
    NotUnderstood(usize),
}

/// More frames than any profiler writes; the rest is left out.
const MOST_FRAMES: usize = 4096;

pub fn parse(bytes: &[u8]) -> Result<HeapProfile, NoProfile> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(NoProfile::Compressed);
    }
    let mut lines = bytes.split(|byte| *byte == b'\n').zip(1..);
    let Some((header, number)) = lines.find(|(line, _)| !line.trim_ascii().is_empty()) else {
        return Err(NoProfile::Empty);
    };
    let header = Header::read(header).ok_or(NoProfile::NotUnderstood(number))?;
    let mut reader = Reader {
        format: header.format,
        profile: HeapProfile {
            origin: header.origin,
            mean: header.mean,
            cut_off: true,
            ..HeapProfile::default()
        },
        in_mappings: false,
    };
    for (line, number) in lines {
        reader.line(line, number)?;
    }
    let mut profile = reader.profile;
    order::sort_by_key(&mut profile.mappings, |mapping| mapping.start);
    Ok(profile)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Figures and stack in one line.
    Line,
    /// The stack in a line, its figures in the next.
    Jemalloc,
}

struct Header {
    format: Format,
    origin: Origin,
    mean: u64,
}

impl Header {
    fn read(line: &[u8]) -> Option<Self> {
        if let Some(rest) = line.strip_prefix(b"heap_v2/") {
            return Some(Self {
                format: Format::Jemalloc,
                origin: Origin::Sampled,
                mean: Cursor(rest).whole()?,
            });
        }
        let mut cursor = Cursor(line.strip_prefix(b"heap profile:")?);
        cursor.both()?;
        cursor.eat(b"@")?;
        let kind = cursor.0.trim_ascii();
        let name = kind.split(|byte| *byte == b'/').next()?;
        let period = kind.get(name.len() + 1..).unwrap_or_default();
        let (origin, mean) = match name {
            b"heap_v2" | b"heapz_v2" => match Cursor(period).whole().unwrap_or(1) {
                0 | 1 => (Origin::Exact, 0),
                mean => (Origin::Sampled, mean),
            },
            b"heapprofile" | b"growth" | b"growthz" => (Origin::Unstated, 0),
            _ => return None,
        };
        Some(Self {
            format: Format::Line,
            origin,
            mean,
        })
    }
}

struct Reader {
    format: Format,
    profile: HeapProfile,
    in_mappings: bool,
}

impl Reader {
    fn line(&mut self, line: &[u8], number: usize) -> Result<(), NoProfile> {
        let line = line.trim_ascii();
        let read = if line.is_empty() {
            Some(())
        } else if line == b"MAPPED_LIBRARIES:" {
            self.in_mappings = true;
            self.profile.cut_off = false;
            Some(())
        } else if self.in_mappings {
            self.mapping(line)
        } else if let Some(rest) = line.strip_prefix(b"#") {
            self.comment(rest.trim_ascii())?;
            Some(())
        } else {
            match self.format {
                Format::Line => self.stack(line),
                Format::Jemalloc => self.jemalloc(line),
            }
        };
        if read.is_none() {
            self.profile.damaged += 1;
            self.profile.damage.get_or_insert(Damage {
                line: number,
                what: if self.in_mappings {
                    "no mapping of a module"
                } else {
                    "no stack with its figures"
                },
            });
        }
        Ok(())
    }

    fn stack(&mut self, line: &[u8]) -> Option<()> {
        let mut cursor = Cursor(line);
        let (in_use, allocated) = cursor.both()?;
        cursor.eat(b"@")?;
        let frames = frames(cursor.0)?;
        let figures = self.figures(in_use, allocated);
        self.profile.stacks.push(ProfiledStack {
            frames,
            figures,
            truncated: false,
        });
        Some(())
    }

    /// A stack's line, or its figures: of all threads (`t*`), or of one thread, which `t*` includes.
    fn jemalloc(&mut self, line: &[u8]) -> Option<()> {
        if let Some(rest) = line.strip_prefix(b"@") {
            self.profile.stacks.push(ProfiledStack {
                frames: frames(rest)?,
                ..ProfiledStack::default()
            });
            return Some(());
        }
        let Some(rest) = line.strip_prefix(b"t*:") else {
            return line.starts_with(b"t").then_some(());
        };
        let (in_use, allocated) = Cursor(rest).both()?;
        let figures = self.figures(in_use, allocated);
        // Figures before the first stack are the sum of all.
        if let Some(stack) = self.profile.stacks.last_mut() {
            stack.figures = figures;
        }
        Some(())
    }

    /// Scales the figures if the writer has not done so.
    fn figures(&self, in_use: Estimate, allocated: Estimate) -> Figures {
        let mean = self.profile.mean as f64;
        let scaled = self.profile.origin == Origin::Sampled;
        let (in_use_scale, allocated_scale) = match scaled {
            true => (scale(in_use, mean), scale(allocated, mean)),
            false => (1.0, 1.0),
        };
        let size = in_use.bytes / in_use.objects.max(1.0);
        let one = in_use_scale * (in_use_scale - 1.0) * size * size;
        let times = |e: Estimate, scale: f64| Estimate {
            objects: e.objects * scale,
            bytes: e.bytes * scale,
        };
        Figures {
            in_use: times(in_use, in_use_scale),
            allocated: times(allocated, allocated_scale),
            spread: Spread {
                variance: in_use.objects * one,
                heaviest: one.sqrt(),
                sampled_bytes: in_use.bytes,
                samples: in_use.objects,
            },
            ..Figures::default()
        }
    }

    /// A comment of Larder's about the whole profile or the preceding stack; other comments are ignored.
    fn comment(&mut self, text: &[u8]) -> Result<(), NoProfile> {
        let mut fields = text
            .split(|byte| *byte == b';')
            .map(<[u8]>::trim_ascii)
            .peekable();
        let version = fields
            .peek()
            .and_then(|field| field.strip_prefix(b"larder "));
        if let (Some(version), true) = (version, self.profile.stacks.is_empty()) {
            match Cursor(version).whole() {
                Some(1) => {}
                other => return Err(NoProfile::Newer(other.unwrap_or(0))),
            }
            self.profile.origin = Origin::Larder;
            for field in fields {
                self.about(field);
            }
        } else if (self.profile.origin == Origin::Larder || self.profile.leaks.is_some())
            && let Some(stack) = self.profile.stacks.last_mut()
        {
            for field in fields {
                detail(stack, field);
            }
        }
        Ok(())
    }

    fn about(&mut self, field: &[u8]) {
        if let Some(mean) = field.strip_prefix(b"mean ") {
            self.profile.mean = Cursor(mean).whole().unwrap_or(0);
        } else if let Some(process) = field.strip_prefix(b"process ") {
            let id = Cursor(process).whole();
            self.profile.process = id.and_then(|id| u32::try_from(id).ok());
        } else if field == b"leaks" {
            self.profile.origin = Origin::Exact;
            self.profile.leaks = Some(LeakCheck::default());
        } else if let Some(check) = &mut self.profile.leaks {
            if let Some(reachable) = field.strip_prefix(b"reachable ") {
                check.reachable = Cursor(reachable).estimate().unwrap_or_default();
            }
            check.threads_ran |= field == b"threads ran";
        }
    }

    fn mapping(&mut self, line: &[u8]) -> Option<()> {
        // gperftools lists its own build among the modules.
        if line.starts_with(b"build=") {
            return Some(());
        }
        let mapping = mapping(line)?;
        self.profile.mappings.extend(mapping);
        Some(())
    }
}

/// 1 / (1 - exp(-size / mean)), of the mean size.
fn scale(e: Estimate, mean: f64) -> f64 {
    if e.objects < 1.0 || e.bytes < 1.0 || mean < 1.0 {
        return 1.0;
    }
    // A smaller value would scale to more than any number of bytes.
    let chance = -(-(e.bytes / e.objects) / mean).exp_m1();
    1.0 / chance.max(1e-9)
}

/// A field of a stack that Larder writes.
fn detail(stack: &mut ProfiledStack, field: &[u8]) {
    let figures = &mut stack.figures;
    if field == b"truncated" {
        stack.truncated = true;
    } else if field == b"other stacks" {
        stack.frames.clear();
    } else if let Some(rest) = field.strip_prefix(b"deviation ") {
        let mut cursor = Cursor(rest);
        let mut next = |name: &[u8]| {
            cursor.eat(name)?;
            cursor.number()
        };
        if let (Some(deviation), Some(heaviest), Some(bytes)) =
            (next(b""), next(b"heaviest"), next(b"sampled"))
        {
            figures.spread.variance = deviation * deviation;
            figures.spread.heaviest = heaviest;
            figures.spread.sampled_bytes = bytes;
        }
    } else if let Some(rest) = field.strip_prefix(b"samples ") {
        figures.spread.samples = Cursor(rest).number().unwrap_or(0.0);
    } else if let Some(rest) = field.strip_prefix(b"peak ") {
        figures.at_peak = Cursor(rest).estimate().unwrap_or_default();
    } else if let Some(rest) = field.strip_prefix(b"indirect ") {
        figures.indirect = Cursor(rest).estimate().unwrap_or_default();
    } else if let Some(rest) = field.strip_prefix(b"at mark ") {
        figures.at_mark = Cursor(rest).estimate().unwrap_or_default();
    } else if let Some(rest) = field.strip_prefix(b"lifetimes ") {
        let mut cursor = Cursor(rest);
        while let Some(lifetime) = cursor.estimate() {
            figures.add_lifetimes(lifetime.objects.max(1.0).log2() as usize, lifetime.bytes);
        }
    }
}

fn frames(text: &[u8]) -> Option<Vec<u64>> {
    let words = text.split(|byte| byte.is_ascii_whitespace());
    let words = words.filter(|word| !word.is_empty()).take(MOST_FRAMES);
    words
        .map(|word| hexadecimal(word.strip_prefix(b"0x").unwrap_or(word)))
        .collect()
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    u64::from_str_radix(text, 16).ok()
}

/// Parses a line of /proc/PID/maps. `Some(None)`: no code, or no file.
pub fn mapping(line: &[u8]) -> Option<Option<Mapping>> {
    let mut rest = line;
    let mut word = || {
        let text = rest.trim_ascii_start();
        let end = text
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(text.len());
        let (word, behind) = text.split_at(end);
        rest = behind;
        word
    };
    let range = word();
    let (permissions, offset) = (word(), word());
    let (_device, _inode) = (word(), word());
    let path = rest.trim_ascii();
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let mapping = Mapping {
        start: hexadecimal(&range[..dash])?,
        end: hexadecimal(&range[dash + 1..])?,
        offset: hexadecimal(offset)?,
        path: path.to_vec(),
    };
    let is_code = permissions.get(2) == Some(&b'x') && !path.is_empty();
    Some((is_code && mapping.start < mapping.end).then_some(mapping))
}

/// The unread rest of a line.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// Skips spaces, then this text.
    fn eat(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.trim_ascii_start().strip_prefix(text)?;
        Some(())
    }

    /// A number, clamped to 0 … 2^64.
    fn number(&mut self) -> Option<f64> {
        let text = self.0.trim_ascii_start();
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        let count = digits
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = digits.split_at(count);
        let value: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let negative = text.starts_with(b"-");
        self.0 = rest;
        Some(if negative {
            0.0
        } else {
            value.min(u64::MAX as f64)
        })
    }

    /// The rest.
    fn whole(mut self) -> Option<u64> {
        let value = self.number()?;
        self.0.trim_ascii().is_empty().then_some(value as u64)
    }

    /// objects: bytes
    fn estimate(&mut self) -> Option<Estimate> {
        let objects = self.number()?;
        self.eat(b":")?;
        let bytes = self.number()?;
        Some(Estimate { objects, bytes })
    }

    /// Figures in use, and, in brackets, allocated.
    fn both(&mut self) -> Option<(Estimate, Estimate)> {
        let in_use = self.estimate()?;
        self.eat(b"[")?;
        let allocated = self.estimate()?;
        self.eat(b"]")?;
        Some((in_use, allocated))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> HeapProfile {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn larders_estimates_are_taken_as_they_are() {
        let profile = read(
            "heap profile: 3: 300 [5: 500] @ heapprofile\n\
             # larder 1; mean 524288; process 77; 95 % in use: 1 to 2; samples 2\n\
             3: 300 [5: 500] @ 0x10 0x2f\n\
             # truncated; 95 % in use: 90 to 400; deviation 20 heaviest 10 sampled 48; samples 2; \
             peak 4: 400; at mark 1: 100; lifetimes 1:2 1024:7\n\
             0: 0 [9: 90] @ 0x0\n\
             # other stacks; 95 % in use: 0 to 1\n\
             \n\
             MAPPED_LIBRARIES:\n\
             2000-3000 r--p 00000000 00:00 0   /usr/lib/x\n\
             1000-2000 r-xp 00000500 00:00 0   /usr/lib/a b\n",
        );
        assert_eq!((profile.origin, profile.mean), (Origin::Larder, 524_288));
        assert_eq!((profile.process, profile.damaged), (Some(77), 0));
        let [stack, other] = &profile.stacks[..] else {
            panic!("{profile:?}")
        };
        assert_eq!(stack.frames, [0x10, 0x2f]);
        assert!(stack.truncated && !profile.cut_off);
        let figures = &stack.figures;
        assert_eq!((figures.in_use.objects, figures.in_use.bytes), (3.0, 300.0));
        assert_eq!(figures.spread.variance, 400.0);
        assert_eq!(figures.spread.sampled_bytes, 48.0);
        assert_eq!(figures.at_peak.bytes, 400.0);
        assert_eq!(figures.at_mark.objects, 1.0);
        assert_eq!(figures.freed(), 9.0);
        assert_eq!(figures.lifetime_below(0.1), Some(2.0));
        assert_eq!(figures.lifetime_below(0.5), Some(2048.0));
        assert!(other.frames.is_empty());
        assert_eq!(profile.mappings.len(), 1);
        assert_eq!(profile.mappings[0].path, b"/usr/lib/a b");
        assert_eq!(profile.mappings[0].offset, 0x500);
    }

    #[test]
    fn gperftools_profile_of_every_object_has_no_interval() {
        let profile = read(
            "heap profile:    266:  1990079 [  1200:  3475200] @ heapprofile\n   \
             266:  1990079 [   400:  2992600] @ 0x1 0x2\n",
        );
        assert_eq!(profile.origin, Origin::Unstated);
        let total = profile.total();
        assert_eq!(total.allocated.objects, 400.0);
        let interval = total.spread.interval(total.in_use.bytes);
        assert_eq!((interval.low, interval.high), (1_990_079.0, 1_990_079.0));
        assert!(profile.cut_off);
    }

    #[test]
    fn samples_are_scaled_by_the_chance_they_had() {
        // An object as large as the mean is sampled with probability 1 - 1/e.
        let sampled =
            read("heap profile: 2: 2000 [4: 4000] @ heap_v2/1000\n2: 2000 [4: 4000] @ 0x1\n");
        let jemalloc = read(
            "heap_v2/1000\n t*: 9: 9 [0: 0]\n@ 0x1\n t*: 2: 2000 [4: 4000]\n t3: 2: 2000 [4: 4000]\n",
        );
        for profile in [sampled, jemalloc] {
            let figures = &profile.stacks[0].figures;
            let weight = 1.0 / (1.0 - (-1f64).exp());
            assert!((figures.in_use.bytes - 2000.0 * weight).abs() < 1e-6);
            assert!((figures.allocated.objects - 4.0 * weight).abs() < 1e-9);
            // (1 - p) / p² of each.
            let variance = 2.0 * 1e6 * weight * (weight - 1.0);
            assert!((figures.spread.variance - variance).abs() < 1e-3);
            assert_eq!(figures.spread.samples, 2.0);
            assert_eq!((profile.stacks.len(), profile.damaged), (1, 0));
        }
    }

    #[test]
    fn other_files_are_reported() {
        assert_eq!(parse(b"\n \n"), Err(NoProfile::Empty));
        assert_eq!(parse(b"\x1f\x8b\x08"), Err(NoProfile::Compressed));
        assert_eq!(parse(b"\nhello"), Err(NoProfile::NotUnderstood(2)));
        let newer = "heap profile: 0: 0 [0: 0] @ heapprofile\n# larder 2; mean 1\n";
        assert_eq!(parse(newer.as_bytes()), Err(NoProfile::Newer(2)));
        let cpu = "heap profile: 0: 0 [0: 0] @ contention\n";
        assert_eq!(parse(cpu.as_bytes()), Err(NoProfile::NotUnderstood(1)));
    }

    #[test]
    fn a_damaged_line_is_left_out_and_reported() {
        let profile = read(
            "heap profile: 1: 1 [1: 1] @ heapprofile\n1: 1 [1: 1] @ 0x1\n1: 1 [1: 1 @ 0x2\nnoise\n\
             2: 2 [2: 2] @ 0x3\n\nMAPPED_LIBRARIES:\nzz-1 r-xp 0 0 0 /x\n",
        );
        assert_eq!(profile.stacks.len(), 2);
        assert_eq!(profile.damaged, 3);
        assert_eq!(profile.damage.unwrap().line, 3);
    }
}
