//! Series as a file: a row for each bucket, a column for each field of each family.

use std::borrow::Cow;

use kernel::base::Timestamp;
use kernel::http::RowEncoding;
use serde::Serialize;

use crate::families::Families;
use crate::shown::{FigureField, Shown};

/// A bucket with the fields of all families.
#[derive(Clone, Debug, Serialize)]
pub struct FigureRow {
    start: Timestamp,
    fields: Vec<FigureField>,
}

/// The rows, and how they are written.
pub fn to_rows(families: &Families, starts: &[i64]) -> (Vec<FigureRow>, RowEncoding<FigureRow>) {
    let mut columns: Vec<Cow<'static, str>> = vec!["start".into()];
    let row = |start: &i64| FigureRow { start: Timestamp::from_millis(*start), fields: Vec::new() };
    let mut rows: Vec<FigureRow> = starts.iter().map(row).collect();
    macro_rules! add {
        ($($family:ident),*) => {$(
            if let Some(family) = &families.$family {
                for (index, (row, bucket)) in rows.iter_mut().zip(&family.series).enumerate() {
                    for (name, field) in bucket.figures.columns() {
                        if index == 0 {
                            columns.push(format!(concat!(stringify!($family), ".{}"), name).into());
                        }
                        row.fields.push(field);
                    }
                }
            }
        )*};
    }
    add!(tickets, devices, vms, backups, workflows, webhooks, api_usage, searches);
    let write = |row: &FigureRow, line: &mut kernel::http::CsvLine<'_>| {
        line.push_plain(Some(row.start));
        for field in &row.fields {
            match field {
                FigureField::Number(number) => line.push_plain(*number),
                FigureField::Word(word) => line.push_optional(word.as_deref()),
            }
        }
    };
    (rows, RowEncoding::Csv { columns, write: Box::new(write) })
}
