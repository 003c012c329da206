//! Splits the records of a sealed chunk into columns: all control bytes, all times, all sizes, and so on.
//! That compresses better, and faster.
//!
//! Invariants: join(split(records)) = records. None panics, and `split` does not allocate; bytes written ≤ bytes
//! of the records + `HEADER_BYTES`.

use std::{slice, vec};

use crate::codec::shape::{self, Field, Fields};
use crate::layout::Form;

pub const COLUMNS: usize = Field::Definition as usize + 1;
/// The columns' lengths, before the columns themselves.
pub const HEADER_BYTES: usize = 4 * COLUMNS;

/// Writes complete records as columns; returns the bytes used of `out`. `None` if this version does not
/// know the records, or if they do not fit. REQUIRES: `work` has `COLUMNS` times the bytes of `records`.
pub fn split(records: &[u8], work: &mut [u8], out: &mut [u8]) -> Option<usize> {
    split_to::<COLUMNS>(records, Form::V3, work, out)
}

/// Traces without times have twice as many columns: the further bytes of numbers are apart from the first ones.
/// They compress better.
pub mod apart {
    use super::*;

    pub const COLUMNS: usize = 2 * super::COLUMNS;
    pub const HEADER_BYTES: usize = 4 * COLUMNS;

    pub fn split(records: &[u8]) -> Option<Vec<u8>> {
        let mut work = vec![0; COLUMNS * records.len()];
        let mut out = vec![0; records.len() + HEADER_BYTES];
        split_to::<COLUMNS>(records, Form::Ordered, &mut work, &mut out).map(|_| out)
    }
}

#[inline(always)]
fn split_to<const COUNT: usize>(
    records: &[u8],
    form: Form,
    work: &mut [u8],
    out: &mut [u8],
) -> Option<usize> {
    // Each byte comes from the records, so no column outgrows its room.
    let room = records.len();
    let starts: [usize; COUNT] = std::array::from_fn(|column| column * room);
    let mut split = Split {
        records: records.iter(),
        work,
        ends: starts,
    };
    while !split.records.as_slice().is_empty() {
        shape::record(&mut split, form)?;
    }
    let Split { work, ends, .. } = split;
    let (header, mut rest) = out.split_at_mut_checked(4 * COUNT)?;
    for (place, (start, end)) in header.chunks_exact_mut(4).zip(starts.into_iter().zip(ends)) {
        let length = end - start;
        place.copy_from_slice(&(length as u32).to_le_bytes());
        let (to, behind) = rest.split_at_mut_checked(length)?;
        to.copy_from_slice(work.get(start..end)?);
        rest = behind;
    }
    Some(4 * COUNT + room)
}

struct Split<'a, const COUNT: usize> {
    records: slice::Iter<'a, u8>,
    work: &'a mut [u8],
    /// Where the next byte of each column goes.
    ends: [usize; COUNT],
}

impl<const COUNT: usize> Split<'_, COUNT> {
    #[inline(always)]
    fn next(&mut self, column: usize) -> Option<u8> {
        let value = *self.records.next()?;
        let end = &mut self.ends[column];
        *self.work.get_mut(*end)? = value;
        *end += 1;
        Some(value)
    }
}

impl<const COUNT: usize> Fields for Split<'_, COUNT> {
    #[inline(always)]
    fn byte(&mut self, field: Field) -> Option<u8> {
        self.next(field as usize)
    }

    #[inline(always)]
    fn further(&mut self, field: Field) -> Option<u8> {
        self.next(further::<COUNT>(field))
    }
}

/// The column of the further bytes of a field's numbers.
#[inline(always)]
const fn further<const COUNT: usize>(field: Field) -> usize {
    field as usize + COUNT - COLUMNS
}

/// The records of a chunk that were not taken yet.
pub trait Records: Fields {
    /// The next record's control byte. `None`: there is no further record.
    fn control(&self) -> Option<u8>;
    fn bytes_left(&self) -> usize;
}

/// Records one behind the other.
pub struct Rows(vec::IntoIter<u8>);

impl Rows {
    pub fn of(records: Vec<u8>) -> Self {
        Self(records.into_iter())
    }
}

impl Records for Rows {
    fn control(&self) -> Option<u8> {
        self.0.as_slice().first().copied()
    }

    fn bytes_left(&self) -> usize {
        self.0.len()
    }
}

impl Fields for Rows {
    fn byte(&mut self, _field: Field) -> Option<u8> {
        self.0.next()
    }
}

/// The records of a chunk in `COUNT` columns.
pub struct Columns<const COUNT: usize>([vec::IntoIter<u8>; COUNT]);

impl<const COUNT: usize> Columns<COUNT> {
    /// `None` if the lengths are not those of the columns behind them.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (header, mut rest) = bytes.split_at_checked(4 * COUNT)?;
        let mut columns = [const { Vec::new() }; COUNT];
        for (column, length) in columns.iter_mut().zip(header.chunks_exact(4)) {
            let length = u32::from_le_bytes(length.try_into().ok()?);
            let (bytes, behind) = rest.split_at_checked(length as usize)?;
            (*column, rest) = (bytes.to_vec(), behind);
        }
        rest.is_empty().then(|| Self(columns.map(Vec::into_iter)))
    }
}

impl<const COUNT: usize> Records for Columns<COUNT> {
    fn control(&self) -> Option<u8> {
        self.0[Field::Control as usize].as_slice().first().copied()
    }

    fn bytes_left(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }
}

impl<const COUNT: usize> Fields for Columns<COUNT> {
    #[inline(always)]
    fn byte(&mut self, field: Field) -> Option<u8> {
        self.0[field as usize].next()
    }

    #[inline(always)]
    fn further(&mut self, field: Field) -> Option<u8> {
        self.0[further::<COUNT>(field)].next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken_apart(records: &[u8]) -> Option<Vec<u8>> {
        let mut work = vec![0; COLUMNS * records.len()];
        let mut out = vec![0; records.len() + HEADER_BYTES];
        let bytes = split(records, &mut work, &mut out)?;
        assert_eq!(bytes, out.len());
        Some(out)
    }

    /// Notes the bytes that are taken.
    struct Noted<'a, R>(R, &'a mut Vec<u8>);

    impl<R: Fields> Fields for Noted<'_, R> {
        fn byte(&mut self, field: Field) -> Option<u8> {
            self.0.byte(field).inspect(|byte| self.1.push(*byte))
        }

        fn further(&mut self, field: Field) -> Option<u8> {
            self.0.further(field).inspect(|byte| self.1.push(*byte))
        }
    }

    /// Joins the columns to records, which it appends to `out`. `None` if the columns are malformed.
    fn join<const COUNT: usize>(columns: &[u8], form: Form, out: &mut Vec<u8>) -> Option<()> {
        let mut noted = Noted(Columns::<COUNT>::of(columns)?, out);
        while noted.0.control().is_some() {
            shape::record(&mut noted, form)?;
        }
        (noted.0.bytes_left() == 0).then_some(())
    }

    const APART: usize = apart::COLUMNS;

    proptest! {
        /// Random bytes are mostly valid records: cuts them off where they are not.
        #[test]
        fn what_was_split_is_joined(mut records in proptest::collection::vec(any::<u8>(), 0..400)) {
            let columns = loop {
                match taken_apart(&records) {
                    Some(columns) => break columns,
                    None => _ = records.pop(),
                }
            };
            let mut back = vec![7];
            prop_assert_eq!(join::<COLUMNS>(&columns, Form::V3, &mut back), Some(()));
            prop_assert_eq!(&back[1..], &records[..]);
            let columns = loop {
                match apart::split(&records) {
                    Some(columns) => break columns,
                    None => _ = records.pop(),
                }
            };
            back.clear();
            prop_assert_eq!(join::<APART>(&columns, Form::Ordered, &mut back), Some(()));
            prop_assert_eq!(&back, &records);
        }

        #[test]
        fn damaged_columns_write_no_more_than_they_hold(columns in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut out = Vec::new();
            let _ = join::<COLUMNS>(&columns, Form::V3, &mut out);
            prop_assert!(out.len() <= columns.len());
            out.clear();
            let _ = join::<APART>(&columns, Form::Ordered, &mut out);
            prop_assert!(out.len() <= columns.len());
        }
    }

    #[test]
    fn columns_that_are_cut_or_too_long_are_malformed() {
        // A malloc with all fields, and a free as predicted.
        let records = [0, 1, 2, 3, 4, 0b0010_1110, 5];
        let good = taken_apart(&records).unwrap();
        let mut out = Vec::new();
        assert_eq!(join::<COLUMNS>(&good, Form::V3, &mut out), Some(()));
        assert_eq!(out, records);
        for length in 0..good.len() {
            assert_eq!(
                join::<COLUMNS>(&good[..length], Form::V3, &mut Vec::new()),
                None,
                "{length}"
            );
        }
        let longer = [good.as_slice(), &[0]].concat();
        assert_eq!(join::<COLUMNS>(&longer, Form::V3, &mut Vec::new()), None);
    }

    #[test]
    fn what_is_no_record_or_does_not_fit_is_left_alone() {
        assert_eq!(taken_apart(&[0x80]), None);
        assert_eq!(taken_apart(&[0b0111_1111]), None);
        let records = [0, 1, 2, 3, 4];
        assert_eq!(
            split(&records, &mut [0; 45], &mut [0; HEADER_BYTES + 4]),
            None
        );
        assert_eq!(
            split(&records, &mut [0; 20], &mut [0; HEADER_BYTES + 5]),
            None
        );
    }
}
