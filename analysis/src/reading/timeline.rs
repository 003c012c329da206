//! Live bytes over the life of a program, by origin: an observer.
//!
//! Time is divided into columns of equal width; when there are too many, pairs are merged and the width
//! doubles. A column shows the moment with the most live bytes in it, so the origins' shares add up to
//! that, and the peak's column shows the peak exactly.
//!
//! Memory: 40 bytes for each column in which an origin changed, up to `COLUMNS` an origin. Time:
//! constant a change; each doubling, of up to 64, passes over all columns.

use larder_base::order;
use larder_trace::{Event, Events, Trace};
use rustc_hash::FxHashMap;

use super::heap::{Block, OriginId};
use super::observe::{End, Finished, Live, Made, Moment, Observer};
use super::sites::{SiteId, SiteStack, SiteTable};

/// The largest number of columns; even, because pairs are merged.
pub const COLUMNS: usize = 512;

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
    /// What each origin allocated by column, in the order of the origins; see `made`.
    parts: Vec<MadePart>,
    /// By origin: the end of its parts.
    ends: Vec<usize>,
}

/// The allocations of an origin in one column.
#[derive(Clone, Copy, Debug)]
pub struct MadePart {
    pub column: u32,
    pub calls: u64,
    pub bytes: u64,
}

impl Timeline {
    /// The columns in which an origin allocated.
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
    column: usize,
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
#[derive(Clone, Debug, Default)]
struct Track {
    live: u64,
    shown: u64,
    changed_at: u64,
    calls: u64,
    bytes: u64,
    parts: Vec<Part>,
}

/// Invariants: `totals` are of all columns before `open`; `live` = sum of `tracks[*].live`; of every
/// column, `totals` = sum over the tracks of what they show in it; `opened_at` <= `shown_at` <= `now`.
struct Recording {
    start: u64,
    width: u64,
    /// The open column, the first time after it, and the number of changes before it.
    open: usize,
    until: u64,
    opened_at: u64,
    totals: Vec<u64>,
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
        for origin in self.changed.drain(..) {
            let track = &mut self.tracks[origin];
            if track.changed_at <= self.shown_at {
                track.shown = track.live;
            }
            track.parts.push(Part {
                column: self.open,
                shown: track.shown,
                end: track.live,
                calls: track.calls,
                bytes: track.bytes,
            });
        }
        self.totals.push(self.most);
        self.totals.resize(column, self.live);
        self.open = column;
        self.most = self.live;
        (self.opened_at, self.shown_at) = (self.now, self.now);
    }

    /// Merges pairs of columns; each shows the moment of the higher one.
    fn merge(&mut self) {
        let first_shown: Vec<bool> = self
            .totals
            .chunks(2)
            .map(|pair| pair.first() >= pair.last())
            .collect();
        for track in &mut self.tracks {
            let (mut from, mut to, mut before) = (0, 0, 0);
            let parts = &mut track.parts;
            while let Some(part) = parts.get(from).copied() {
                let column = part.column / 2;
                let first = (part.column % 2 == 0).then_some(part);
                let second = match first {
                    Some(_) => parts.get(from + 1).copied(),
                    None => Some(part),
                };
                let second = second.filter(|part| part.column == 2 * column + 1);
                let middle = first.map_or(before, |part| part.end);
                let end = second.map_or(middle, |part| part.end);
                let shown = match first_shown.get(column) {
                    Some(true) => first.map_or(before, |part| part.shown),
                    _ => second.map_or(middle, |part| part.shown),
                };
                let both = || first.into_iter().chain(second);
                parts[to] = Part {
                    column,
                    shown,
                    end,
                    calls: both().map(|part| part.calls).fold(0, u64::saturating_add),
                    bytes: both().map(|part| part.bytes).fold(0, u64::saturating_add),
                };
                (from, to, before) = (from + both().count(), to + 1, end);
            }
            parts.truncate(to);
            if parts.capacity() > 4 * to {
                parts.shrink_to(2 * to);
            }
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
        for (origin, source) in image.sources.iter().enumerate() {
            let most = self.tracks[origin]
                .parts
                .iter()
                .map(|part| part.shown)
                .max();
            let Some(most) = most.filter(|most| *most > 0) else {
                continue;
            };
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
        let sites = ranked
            .into_iter()
            .map(|(id, (_, origins))| (id, origins[0], self.columns(&origins)))
            .collect();
        let (mut parts, mut ends) = (Vec::new(), Vec::with_capacity(self.tracks.len()));
        for track in self.tracks {
            let made = track.parts.iter().filter(|part| part.calls > 0);
            parts.extend(made.map(|part| MadePart {
                column: part.column as u32,
                calls: part.calls,
                bytes: part.bytes,
            }));
            ends.push(parts.len());
        }
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

    /// The values of some origins in all columns.
    fn columns(&self, origins: &[usize]) -> Vec<u64> {
        let mut columns = vec![0u64; self.totals.len()];
        for origin in origins {
            let (mut live, mut from) = (0u64, 0);
            let hold = |columns: &mut [u64], bytes| {
                if bytes > 0 {
                    let held = columns.iter_mut();
                    held.for_each(|column| *column = column.saturating_add(bytes));
                }
            };
            for part in &self.tracks[*origin].parts {
                hold(&mut columns[from..part.column], live);
                hold(&mut columns[part.column..=part.column], part.shown);
                (live, from) = (part.end, part.column + 1);
            }
            hold(&mut columns[from..], live);
        }
        columns
    }
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
        let found: Vec<Vec<u64>> = (0..origins)
            .map(|origin| recording.columns(&[origin]))
            .collect();
        for (index, column) in expected.iter().enumerate() {
            let found: Vec<u64> = found.iter().map(|columns| columns[index]).collect();
            assert_eq!(&found, column, "column {index}");
            assert_eq!(
                recording.totals[index],
                column.iter().sum::<u64>(),
                "column {index}"
            );
        }
        for (origin, track) in recording.tracks.iter().enumerate() {
            for part in &track.parts {
                let made = steps.iter().filter(|(time, of, bytes)| {
                    let column = (time - 1000) / recording.width;
                    (*of, column) == (origin, part.column as u64) && *bytes >= 0
                });
                let sums = made.fold((0, 0), |(calls, sum), (.., bytes)| (calls + 1, sum + bytes));
                assert_eq!((part.calls, part.bytes as i64), sums);
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
