//! The fields of a record in order, without their meaning: enough to split records into columns.

use super::definitions::{
    CONTENTS, COUNTER, FINGERPRINT_BYTES, GENERATION, LINK_NEW, MARK, MARK_NAME, NODES, SAMPLE,
    SITE, SWITCH, SYSTEM_CALL, SYSTEM_CALL_2_2, SYSTEM_CALL_FIELDS, THREAD, THREAD_END,
};
use super::ordered::{MADE_BLOCK, NAMED, NAMED_OTHER};
use super::{
    ADDRESS_DELTA, ADDRESS_MASK, ADDRESS_RECENT, ADDRESS_SITE_DELTA, CLASS_SHIFT, CLASS_SPECIAL,
    Class, EXTRA, OLD_DELTA, OLD_RECENT, SITE_PREDICTED, SIZE_SAME,
};
use crate::layout::Form;

/// Kinds of fields with similar content.
#[derive(Clone, Copy)]
pub enum Field {
    Control,
    Time,
    Site,
    Size,
    Address,
    Recent,
    SiteAddress,
    /// Fields that few calls have.
    Rest,
    /// All of a record that is no call, except its control byte.
    Definition,
}

/// Takes the bytes of records, one by one. Each field has the next ones of its kind.
pub trait Fields {
    fn byte(&mut self, field: Field) -> Option<u8>;

    /// A byte that is not a number's first.
    #[inline(always)]
    fn further(&mut self, field: Field) -> Option<u8> {
        self.byte(field)
    }

    /// Like `Input::varint`.
    #[inline(always)]
    fn varint(&mut self, field: Field) -> Option<u64> {
        let mut byte = self.byte(field)?;
        let (mut value, mut shift) = (u64::from(byte & 0x7f), 7);
        while byte & 0x80 != 0 {
            byte = self.further(field)?;
            // The tenth byte has the last bit.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Some(value)
    }

    #[inline(always)]
    fn varint_u32(&mut self, field: Field) -> Option<u32> {
        u32::try_from(self.varint(field)?).ok()
    }
}

/// Takes one record; `None` if it is invalid or truncated.
#[inline(always)]
pub fn record(fields: &mut impl Fields, form: Form) -> Option<()> {
    let control = fields.byte(Field::Control)?;
    let class = control >> CLASS_SHIFT;
    if class == CLASS_SPECIAL {
        return definition(control & 0x1f, fields);
    }
    if class > Class::Copy as u8 {
        return None;
    }
    let is_ordered = form == Form::Ordered;
    if is_ordered && class == Class::Copy as u8 {
        return None;
    }
    if !is_ordered {
        fields.varint(Field::Time)?;
    }
    if control & SITE_PREDICTED == 0 {
        fields.varint(Field::Site)?;
    }
    if control & SIZE_SAME == 0 {
        fields.varint(Field::Size)?;
    }
    match control & ADDRESS_MASK {
        NAMED if is_ordered => number(fields, Field::Recent)?,
        _ if is_ordered => {}
        ADDRESS_DELTA => _ = fields.varint(Field::Address)?,
        ADDRESS_RECENT => recent(fields, Field::Recent, form)?,
        ADDRESS_SITE_DELTA => _ = fields.varint(Field::SiteAddress)?,
        _ => {}
    }
    if control & EXTRA != 0 {
        fields.varint(Field::Rest)?;
    }
    if is_ordered && class == Class::Realloc as u8 {
        if fields.varint(Field::Rest)? == MADE_BLOCK {
            number(fields, Field::Rest)?;
        }
        return Some(());
    }
    if class == Class::Realloc as u8 {
        fields.varint(Field::Rest)?;
    }
    if class == Class::Realloc as u8 || class == Class::Copy as u8 {
        match fields.varint(Field::Rest)? {
            OLD_RECENT => recent(fields, Field::Rest, form)?,
            OLD_DELTA => _ = fields.varint(Field::Rest)?,
            _ => {}
        }
    }
    Some(())
}

#[inline(always)]
fn recent(fields: &mut impl Fields, field: Field, form: Form) -> Option<()> {
    match form {
        Form::V2 => _ = fields.byte(field)?,
        Form::V3 | Form::Ordered => _ = fields.varint(field)?,
    }
    Some(())
}

/// Of a block, in a trace without times.
#[inline(always)]
fn number(fields: &mut impl Fields, field: Field) -> Option<()> {
    if fields.varint(field)? == NAMED_OTHER {
        fields.varint(field)?;
        fields.varint(field)?;
    }
    Some(())
}

fn definition(kind: u8, fields: &mut impl Fields) -> Option<()> {
    let mut varint = || fields.varint(Field::Definition);
    match kind {
        NODES => {
            varint()?;
            for _ in 0..varint()? {
                if varint()? == LINK_NEW {
                    varint()?;
                }
            }
        }
        THREAD_END | COUNTER | SWITCH => _ = varint()?,
        THREAD | MARK => _ = (varint()?, varint()?),
        SYSTEM_CALL_2_2 | SAMPLE => _ = (varint()?, varint()?, varint()?),
        SYSTEM_CALL => {
            for _ in 0..SYSTEM_CALL_FIELDS {
                varint()?;
            }
        }
        CONTENTS => {
            _ = (varint()?, varint()?);
            for _ in 0..FINGERPRINT_BYTES {
                fields.byte(Field::Definition)?;
            }
        }
        SITE | GENERATION => {
            varint()?;
            fields.byte(Field::Definition)?;
        }
        MARK_NAME => {
            varint()?;
            for _ in 0..varint()? {
                fields.byte(Field::Definition)?;
            }
        }
        _ => return None,
    }
    Some(())
}
