//! Live bytes over the life of a program, by origin: an observer.
//!
//! Time is divided into columns of equal width; when there are too many, pairs are merged and the width
//! doubles. A column shows the moment with the most live bytes in it, so the origins' shares add up to
//! that, and the peak's column shows the peak exactly.
//!
//! Memory: 40 bytes an origin, and 40 for each column in which it changed, up to `COLUMNS`. Time: constant a
//! change; each doubling, of up to 64, passes over all columns.

use larder_base::order;
use larder_trace::{Event, Events, Trace};
use rustc_hash::FxHashMap;

use super::heap::{Block, OriginId};
use super::observe::{End, Finished, Live, Made, Moment, Observer};
use super::sites::{SiteId, SiteStack, SiteTable};

/// The largest number of columns; even, because pairs are merged.
pub const COLUMNS: usize = 512;
/// The columns in which an origin allocates are told apart in up to this many groups.
const SPANS: usize = 32;

/// Live bytes of a process image.
pub struct Timeline {
    pub pid: u32,
    /// Its number, in the order of reading.
    pub image: usize,
    /// `None` in a trace without times: then columns count events.
    pub column_ns: Option<f64>,
    pub column_events: u64,
    /// The highest live bytes in each column.
    pub totals: Vec<u64>,
    pub peak_bytes: u64,
    /// The sites with the highest live bytes at any time, in descending order, one of the origins of each, and
    /// their share of each column.
    pub sites: Vec<(SiteId, usize, Vec<u64>)>,
    /// The table of the `SiteId`s.
    pub table: SiteTable,
    /// Sites that are not in `sites`.
    pub other_sites: usize,
    /// What each origin allocated by span, in the order of the origins; see `made`.
    parts: Vec<MadePart>,
    /// By origin: the end of its parts.
    ends: Vec<usize>,
}

fn columns_a_span(columns: usize) -> usize {
    columns.div_ceil(SPANS).max(1)
}

/// The allocations of an origin in one span of columns.
#[derive(Clone, Copy, Debug)]
pub struct MadePart {
    pub span: u32,
    pub calls: u64,
    pub bytes: u64,
}

impl Timeline {
    /// Columns of a span: of each of the up to `SPANS` parts of the run.
    pub fn columns_a_span(&self) -> usize {
        columns_a_span(self.totals.len())
    }

    /// The spans in which an origin allocated.
    pub fn made(&self, origin: usize) -> &[MadePart] {
        let end = |origin: usize| self.ends.get(origin).copied();
        let begin = origin.checked_sub(1).map_or(Some(0), end);
        let range = begin.zip(end(origin));
        range.map_or(&[], |(begin, end)| &self.parts[begin..end])
    }
}

/// Collects the timeline of the image with the highest peak.
pub struct TimelineObserver {
    /// Sites shown separately.
    shown: usize,
    recording: Recording,
    images: usize,
    pub timeline: Option<Timeline>,
}

impl TimelineObserver {
    pub fn new(shown: usize) -> Self {
        Self {
            shown,
            recording: Recording::new(0),
            images: 0,
            timeline: None,
        }
    }

    /// A block was allocated; `event` was called before.
    #[inline]
    pub fn add(&mut self, origin: OriginId, size: u64) {
        self.recording.add(origin.index(), size);
    }

    /// A block was freed; `event` was called before.
    #[inline]
    pub fn remove(&mut self, origin: OriginId, size: u64) {
        self.recording.remove(origin.index(), size);
    }

    /// The image was read to its end. Whether it has the highest peak so far.
    pub fn finish(&mut self, image: &mut Finished<'_, '_>) -> bool {
        let mut recording = std::mem::replace(&mut self.recording, Recording::new(0));
        recording.close_to(recording.open + 1);
        let peak_bytes = recording.totals.iter().copied().max().unwrap_or(0);
        let best = self.timeline.as_ref();
        let is_best = best.is_none_or(|best| peak_bytes > best.peak_bytes);
        if is_best {
            let timeline = recording.timeline(image, self.shown, peak_bytes);
            self.timeline = Some(Timeline {
                image: self.images,
                ..timeline
            });
        }
        self.images += 1;
        is_best
    }
}

impl Observer for TimelineObserver {
    type Note = ();

    fn begin_image(&mut self, trace: &Trace) {
        self.recording = Recording::new(trace.clock().start_ticks);
    }

    #[inline]
    fn event(&mut self, event: &Event, _events: &Events<'_>) {
        if event.time >= self.recording.until {
            self.recording.advance(event.time);
        }
    }

    fn made(&mut self, _moment: Moment, made: &Made<'_, ()>) {
        self.add(made.origin, made.size);
    }

    fn ended(&mut self, _moment: Moment, _address: u64, block: &Block<()>, _how: End) {
        self.remove(block.origin, block.size);
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _live: &Live<'_, ()>) {
        self.finish(image);
    }
}

/// An origin's share of one column in which it changed.
#[derive(Clone, Copy, Debug)]
struct Part {
    origin: u32,
    /// At the moment that the column shows.
    shown: u64,
    /// At the column's end.
    end: u64,
    /// Of the blocks allocated in it.
    calls: u64,
    bytes: u64,
}

/// An origin while it is recorded. `shown`, `changed_at`, `calls` and `bytes` are of the open column, if the
/// origin changed in it: if `changed_at` > `Recording::opened_at`.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    live: u64,
    shown: u64,
    changed_at: u64,
    calls: u64,
    bytes: u64,
}

/// Invariants: `totals` and `columns` are of all columns before `open`; `live` = sum of `tracks[*].live`; of
/// every column, `totals` = sum over the tracks of what they show in it; `opened_at` <= `shown_at` <= `now`.
struct Recording {
    start: u64,
    width: u64,
    /// The open column, the first time after it, and the number of changes before it.
    open: usize,
    until: u64,
    opened_at: u64,
    totals: Vec<u64>,
    columns: Vec<Vec<Part>>,
    live: u64,
    /// The highest live bytes in the open column, and the change after which they were reached.
    most: u64,
    shown_at: u64,
    /// The number of changes so far.
    now: u64,
    tracks: Vec<Track>,
    /// The origins that changed in the open column.
    changed: Vec<usize>,
}

impl Recording {
    fn new(start: u64) -> Self {
        Self {
            start,
            width: 1,
            open: 0,
            until: 0,
            opened_at: 0,
            totals: Vec::new(),
            columns: Vec::new(),
            live: 0,
            most: 0,
            shown_at: 0,
            now: 0,
            tracks: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// More bytes at the time of the last `advance`.
    #[inline]
    fn add(&mut self, origin: usize, size: u64) {
        let track = self.change(origin);
        track.calls += 1;
        track.bytes = track.bytes.saturating_add(size);
        track.live = track.live.saturating_add(size);
        self.live = self.live.saturating_add(size);
        if self.live > self.most {
            self.most = self.live;
            self.shown_at = self.now;
        }
    }

    #[inline]
    fn remove(&mut self, origin: usize, size: u64) {
        let track = self.change(origin);
        track.live = track.live.saturating_sub(size);
        self.live = self.live.saturating_sub(size);
    }

    /// The track of an origin, before its live bytes change.
    #[inline]
    fn change(&mut self, origin: usize) -> &mut Track {
        if self
            .tracks
            .get(origin)
            .is_none_or(|track| track.changed_at <= self.opened_at)
        {
            self.open(origin);
        }
        let track = &mut self.tracks[origin];
        if track.changed_at <= self.shown_at {
            track.shown = track.live;
        }
        self.now += 1;
        track.changed_at = self.now;
        track
    }

    #[inline(never)]
    fn open(&mut self, origin: usize) {
        if self.tracks.len() <= origin {
            self.tracks.resize(origin + 1, Track::default());
        }
        let track = &mut self.tracks[origin];
        (track.calls, track.bytes) = (0, 0);
        self.changed.push(origin);
    }

    /// Opens the column of this time, unless it is past.
    fn advance(&mut self, time: u64) {
        let since_start = time.saturating_sub(self.start);
        let column = |width| (since_start / width) as usize;
        while column(self.width) >= COLUMNS {
            self.close_to(COLUMNS);
            self.merge();
        }
        if column(self.width) > self.open {
            self.close_to(column(self.width));
        }
        let end = self.width.saturating_mul(self.open as u64 + 1);
        self.until = self.start.saturating_add(end);
    }

    /// Closes the open column and the unchanged ones up to this one, and opens this one.
    fn close_to(&mut self, column: usize) {
        let parts = self.changed.drain(..).map(|origin| {
            let track = &mut self.tracks[origin];
            if track.changed_at <= self.shown_at {
                track.shown = track.live;
            }
            Part {
                origin: origin as u32,
                shown: track.shown,
                end: track.live,
                calls: track.calls,
                bytes: track.bytes,
            }
        });
        self.columns.push(parts.collect());
        self.columns.resize(column, Vec::new());
        self.totals.push(self.most);
        self.totals.resize(column, self.live);
        self.open = column;
        self.most = self.live;
        (self.opened_at, self.shown_at) = (self.now, self.now);
    }

    /// Merges pairs of columns; each shows the moment of the higher one.
    fn merge(&mut self) {
        let mut columns = std::mem::take(&mut self.columns).into_iter();
        // By origin: its live bytes before the pair, and its place in the first column.
        let mut before = vec![0; self.tracks.len()];
        let mut places = vec![0; self.tracks.len()];
        for pair in self.totals.chunks(2) {
            let shows_first = pair.first() >= pair.last();
            let mut parts = columns.next().unwrap_or_default();
            let second = columns.next().unwrap_or_default();
            parts.reserve_exact(second.len());
            for (place, part) in parts.iter_mut().enumerate() {
                places[part.origin as usize] = place;
                if !shows_first {
                    part.shown = part.end;
                }
            }
            for part in second {
                let origin = part.origin as usize;
                let first = parts.get_mut(places[origin]);
                match first.filter(|first| first.origin == part.origin) {
                    Some(first) => {
                        if !shows_first {
                            first.shown = part.shown;
                        }
                        first.end = part.end;
                        first.calls = first.calls.saturating_add(part.calls);
                        first.bytes = first.bytes.saturating_add(part.bytes);
                    }
                    None => parts.push(Part {
                        shown: if shows_first {
                            before[origin]
                        } else {
                            part.shown
                        },
                        ..part
                    }),
                }
            }
            for part in &parts {
                before[part.origin as usize] = part.end;
            }
            parts.shrink_to_fit();
            self.columns.push(parts);
        }
        let higher = |pair: &[u64]| pair.iter().copied().max().unwrap_or(0);
        self.totals = self.totals.chunks(2).map(higher).collect();
        self.width = self.width.saturating_mul(2);
        self.open = self.totals.len();
    }

    fn timeline(mut self, image: &mut Finished<'_, '_>, shown: usize, peak_bytes: u64) -> Timeline {
        let mut table = SiteTable::default();
        let mut by_site: FxHashMap<SiteId, (u64, Vec<usize>)> = FxHashMap::default();
        self.tracks.resize(image.sources.len(), Track::default());
        let mut most = vec![0; self.tracks.len()];
        for part in self.columns.iter().flatten() {
            let most = &mut most[part.origin as usize];
            *most = part.shown.max(*most);
        }
        for (origin, (source, most)) in image.sources.iter().zip(most).enumerate() {
            if most == 0 {
                continue;
            }
            let stack = SiteStack {
                chain: image.chain(source.stack),
                site: source.site,
            };
            let (weight, origins) = by_site.entry(table.intern(&stack)).or_default();
            *weight = weight.saturating_add(most);
            origins.push(origin);
        }
        let mut ranked: Vec<(SiteId, (u64, Vec<usize>))> = by_site.into_iter().collect();
        order::sort_by(&mut ranked, |(_, (a, origins)), (_, (b, others))| {
            b.cmp(a).then_with(|| origins.cmp(others))
        });
        let other_sites = ranked.len().saturating_sub(shown);
        ranked.truncate(shown);
        let lines = self.lines(ranked.iter().map(|(_, (_, origins))| &**origins));
        let sites = ranked.iter().zip(lines);
        let sites = sites
            .map(|((id, (_, origins)), line)| (*id, origins[0], line))
            .collect();
        let (parts, ends) = made_parts(&self.columns, self.tracks.len());
        Timeline {
            pid: image.trace.process().pid,
            image: 0,
            column_ns: image
                .trace
                .has_times()
                .then(|| self.width as f64 * image.trace.clock().ns_per_tick),
            column_events: self.width,
            peak_bytes,
            sites,
            totals: self.totals,
            table,
            other_sites,
            parts,
            ends,
        }
    }

    /// What groups of origins have in each column.
    fn lines<'o>(&self, groups: impl Iterator<Item = &'o [usize]>) -> Vec<Vec<u64>> {
        let mut lines = Vec::new();
        let mut line_of = vec![None; self.tracks.len()];
        for (line, origins) in groups.enumerate() {
            lines.push(vec![0; self.totals.len()]);
            origins
                .iter()
                .for_each(|origin| line_of[*origin] = Some(line));
        }
        // By origin and by line: the live bytes at the end of the columns so far.
        let mut origins = vec![0u64; self.tracks.len()];
        let mut held = vec![0u128; lines.len()];
        for (column, parts) in self.columns.iter().enumerate() {
            let mut shown = held.clone();
            for part in parts {
                let before = std::mem::replace(&mut origins[part.origin as usize], part.end);
                if let Some(line) = line_of[part.origin as usize] {
                    let change =
                        |sum: &mut u128, to| *sum = *sum + u128::from(to) - u128::from(before);
                    change(&mut shown[line], part.shown);
                    change(&mut held[line], part.end);
                }
            }
            for (line, bytes) in lines.iter_mut().zip(shown) {
                line[column] = u64::try_from(bytes).unwrap_or(u64::MAX);
            }
        }
        lines
    }
}

/// What each origin allocated by span, and where its parts end.
fn made_parts(columns: &[Vec<Part>], origins: usize) -> (Vec<MadePart>, Vec<usize>) {
    let columns_a_span = columns_a_span(columns.len());
    let made = || {
        let spans = columns.chunks(columns_a_span).zip(0u32..);
        let parts = spans.flat_map(|(columns, span)| {
            let parts = columns.iter().flatten();
            parts.map(move |part| (span, part))
        });
        parts.filter(|(_, part)| part.calls > 0)
    };
    // The first span after that of the origin's last part.
    let (mut next, mut ends) = (vec![0; origins], vec![0; origins]);
    for (span, part) in made() {
        let origin = part.origin as usize;
        ends[origin] += usize::from(next[origin] <= span);
        next[origin] = span + 1;
    }
    let mut end = 0;
    for count in &mut ends {
        // Its begin for now; it becomes the end as the parts are stored.
        end += std::mem::replace(count, end);
    }
    let none = MadePart {
        span: u32::MAX,
        calls: 0,
        bytes: 0,
    };
    let mut parts = vec![none; end];
    next.fill(0);
    for (span, part) in made() {
        let origin = part.origin as usize;
        ends[origin] += usize::from(next[origin] <= span);
        next[origin] = span + 1;
        let sum = &mut parts[ends[origin] - 1];
        sum.span = span;
        sum.calls = sum.calls.saturating_add(part.calls);
        sum.bytes = sum.bytes.saturating_add(part.bytes);
    }
    (parts, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time, the origin, and the change of its live bytes.
    type Step = (u64, usize, i64);

    fn record(steps: &[Step]) -> Recording {
        let mut recording = Recording::new(1000);
        for (time, origin, bytes) in steps {
            recording.advance(*time);
            match bytes {
                0.. => recording.add(*origin, bytes.unsigned_abs()),
                _ => recording.remove(*origin, bytes.unsigned_abs()),
            }
        }
        recording.close_to(recording.open + 1);
        recording
    }

    /// The expected values of each column, by brute force: at the first moment with the highest live
    /// bytes.
    fn expected(steps: &[Step], width: u64, columns: usize) -> Vec<Vec<u64>> {
        let origins = steps.iter().map(|step| step.1 + 1).max().unwrap_or(0);
        let mut live = vec![0i64; origins];
        let mut steps = steps.iter().peekable();
        let total = |live: &[i64]| live.iter().sum::<i64>();
        (0..columns as u64)
            .map(|column| {
                let mut shown = live.clone();
                while let Some((_, origin, bytes)) =
                    steps.next_if(|(time, ..)| (time - 1000) / width == column)
                {
                    live[*origin] += bytes;
                    if total(&live) > total(&shown) {
                        shown.clone_from(&live);
                    }
                }
                shown.iter().map(|bytes| bytes.unsigned_abs()).collect()
            })
            .collect()
    }

    fn check(steps: &[Step]) -> Recording {
        let recording = record(steps);
        let expected = expected(steps, recording.width, recording.totals.len());
        let origins = recording.tracks.len();
        let each: Vec<[usize; 1]> = (0..origins).map(|origin| [origin]).collect();
        let found = recording.lines(each.iter().map(|origin| &origin[..]));
        for (index, column) in expected.iter().enumerate() {
            let found: Vec<u64> = found.iter().map(|columns| columns[index]).collect();
            assert_eq!(&found, column, "column {index}");
            assert_eq!(
                recording.totals[index],
                column.iter().sum::<u64>(),
                "column {index}"
            );
        }
        let all: Vec<usize> = (0..origins).collect();
        assert_eq!(recording.lines([&*all].into_iter()), [&*recording.totals]);
        let (parts, ends) = made_parts(&recording.columns, origins);
        let columns_a_span = columns_a_span(recording.columns.len()) as u64;
        let mut begin = 0;
        for (origin, end) in ends.into_iter().enumerate() {
            let parts = &parts[std::mem::replace(&mut begin, end)..end];
            assert!(parts.is_sorted_by_key(|part| part.span));
            for span in 0..SPANS as u32 {
                let made = steps.iter().filter(|(time, of, bytes)| {
                    let column = (time - 1000) / recording.width;
                    (*of, column / columns_a_span) == (origin, u64::from(span)) && *bytes >= 0
                });
                let sums = made.fold((0, 0), |(calls, sum), (.., bytes)| (calls + 1, sum + bytes));
                let part = parts.iter().find(|part| part.span == span);
                let found = part.map_or((0, 0), |part| (part.calls, part.bytes as i64));
                assert_eq!(found, sums, "origin {origin}, span {span}");
            }
        }
        recording
    }

    fn random_steps(count: usize, mut state: u64, gap: u64) -> Vec<Step> {
        let (mut time, mut live) = (1000, [0i64; 5]);
        let mut steps = Vec::new();
        for _ in 0..count {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let (origin, size) = ((state >> 40) as usize % 5, (state >> 50) as i64 % 100);
            time += (state >> 33) % gap;
            let bytes = if state >> 63 == 0 {
                size
            } else {
                -size.min(live[origin])
            };
            live[origin] += bytes;
            steps.push((time, origin, bytes));
        }
        steps
    }

    #[test]
    fn every_column_shows_the_moment_of_its_most() {
        for (seed, gap) in [(1, 1), (2, 3), (3, 50), (4, 10_000)] {
            let recording = check(&random_steps(4000, seed, gap));
            assert!(recording.totals.len() <= COLUMNS);
        }
    }

    #[test]
    fn the_peak_is_exact_and_long_pauses_are_columns_too() {
        let steps = [
            (1000, 0, 10),
            (1003, 1, 500),
            (1003, 1, -500),
            (1_000_000, 0, 5),
        ];
        let recording = check(&steps);
        assert_eq!(recording.totals.iter().max(), Some(&510));
        assert!(
            recording.totals[10..recording.totals.len() - 1]
                .iter()
                .all(|total| *total == 10)
        );
    }

    #[test]
    fn times_that_no_program_has_do_no_harm() {
        let recording = record(&[(u64::MAX, 0, 10), (0, 1, 20), (5, 0, -30), (u64::MAX, 3, 1)]);
        assert!(recording.totals.len() <= COLUMNS);
        assert_eq!(recording.totals.iter().max(), Some(&30));
    }
}
