//! A Parquet table that is filled by rows and written by row groups.
//!
//! Invariant: between rows, all columns hold the same number of rows.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use rustc_hash::FxHashMap;

/// Rows in memory before they are written: with eleven columns, some 20 MB.
const GROUP_ROWS: usize = 1 << 17;

/// A present value.
#[derive(Clone, Debug)]
pub enum Cell {
    Long(i64),
    Number(i32),
    Flag(bool),
    Text(ByteArray),
}

impl Cell {
    /// Beyond what a signed column holds, its bits.
    pub fn long(value: u64) -> Self {
        Cell::Long(value as i64)
    }

    /// Beyond what a signed column holds, its bits.
    pub fn number(value: u32) -> Self {
        Cell::Number(value as i32)
    }
}

pub fn text(text: &str) -> Cell {
    Cell::Text(text.into())
}

#[derive(Default)]
struct Column {
    values: Vec<Cell>,
    /// The definition level of an optional or repeated value, and its repetition level.
    definition: Vec<i16>,
    repetition: Vec<i16>,
    max_definition: i16,
    max_repetition: i16,
}

impl Column {
    fn push(&mut self, value: Option<Cell>, definition: i16, repetition: i16) {
        self.values.extend(value);
        if self.max_definition > 0 {
            self.definition.push(definition);
        }
        if self.max_repetition > 0 {
            self.repetition.push(repetition);
        }
    }

    fn write(&mut self, mut out: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let definition = (self.max_definition > 0).then_some(&*self.definition);
        let repetition = (self.max_repetition > 0).then_some(&*self.repetition);
        let values = std::mem::take(&mut self.values);
        macro_rules! write {
            ($kind:ident, $cell:ident) => {{
                let values = values.into_iter().filter_map(|value| match value {
                    Cell::$cell(value) => Some(value),
                    _ => None,
                });
                let values: Vec<_> = values.collect();
                out.typed::<$kind>()
                    .write_batch(&values, definition, repetition)?;
            }};
        }
        use parquet::column::writer::ColumnWriter;
        match out.untyped() {
            ColumnWriter::Int64ColumnWriter(_) => write!(Int64Type, Long),
            ColumnWriter::Int32ColumnWriter(_) => write!(Int32Type, Number),
            ColumnWriter::BoolColumnWriter(_) => write!(BoolType, Flag),
            _ => write!(ByteArrayType, Text),
        }
        self.definition.clear();
        self.repetition.clear();
        out.close()
    }
}

pub struct Columns<'a> {
    writer: SerializedFileWriter<&'a mut File>,
    columns: Vec<Column>,
    rows: usize,
    /// Texts that repeat.
    texts: FxHashMap<&'static str, ByteArray>,
}

impl<'a> Columns<'a> {
    /// `schema` is in Parquet's own notation; columns that repeat come last.
    pub fn new(schema: &str, file: &'a mut File) -> io::Result<Self> {
        let schema = parse_message_type(schema).map_err(io::Error::other)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("larder ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
            .map_err(io::Error::other)?;
        let columns = writer.schema_descr().columns().iter();
        Ok(Self {
            columns: columns
                .map(|column| Column {
                    max_definition: column.max_def_level(),
                    max_repetition: column.max_rep_level(),
                    ..Column::default()
                })
                .collect(),
            writer,
            rows: 0,
            texts: FxHashMap::default(),
        })
    }

    pub fn text(&mut self, text: &'static str) -> Cell {
        Cell::Text(
            self.texts
                .entry(text)
                .or_insert_with(|| text.into())
                .clone(),
        )
    }

    /// A whole row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Option<Cell>>) -> io::Result<()> {
        self.partial_row(cells);
        self.end_row()
    }

    /// A row without its list.
    pub fn partial_row(&mut self, cells: impl IntoIterator<Item = Option<Cell>>) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            let definition = i16::from(cell.is_some());
            column.push(cell, definition, 0);
        }
    }

    /// The list of required elements at the end of the row, one element at a time.
    pub fn list<const N: usize>(
        &mut self,
        elements: impl Iterator<Item = [Option<Cell>; N]>,
    ) -> io::Result<()> {
        let first = self.columns.len().saturating_sub(N);
        let columns = &mut self.columns[first..];
        let mut repetition = 0;
        for element in elements {
            for (column, cell) in columns.iter_mut().zip(element) {
                let definition = 1 + i16::from(cell.is_some());
                let definition = definition.min(column.max_definition);
                column.push(cell, definition, repetition);
            }
            repetition = 1;
        }
        if repetition == 0 {
            columns
                .iter_mut()
                .for_each(|column| column.push(None, 0, 0));
        }
        self.end_row()
    }

    fn end_row(&mut self) -> io::Result<()> {
        self.rows += 1;
        if self.rows < GROUP_ROWS {
            return Ok(());
        }
        self.write_group().map_err(io::Error::other)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            if let Some(out) = group.next_column()? {
                column.write(out)?;
            }
        }
        self.rows = 0;
        group.close().map(drop)
    }

    /// Writes the last row group, and the index.
    pub fn close(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group().map_err(io::Error::other)?;
        }
        self.writer.close().map(drop).map_err(io::Error::other)
    }
}
