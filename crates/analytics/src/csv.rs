//! Series as a file: a row for each bucket, a column for each field of each family.

use std::borrow::Cow;

use kernel::base::{Result, Timestamp};
use kernel::http::{Access, CsvLine, Route, RowBatch, RowEncoding, Streamed, Streamer};
use serde::Serialize;

use crate::families::Families;
use crate::report::ReportRequest;
use crate::shown::{FigureField, Shown};

/// The figures of a file, of which rows are made page by page.
pub struct FigureFile {
    families: Families,
    starts: Vec<Timestamp>,
}

/// A bucket with the fields of all families.
#[derive(Clone, Debug, Serialize)]
struct FigureRow {
    start: Timestamp,
    fields: Vec<FigureField>,
}

const PAGE_ROWS: usize = 200;

impl FigureFile {
    pub fn new(families: Families, request: &ReportRequest) -> Self {
        let starts = request.bounds.split_last().map(|(_, starts)| starts).unwrap_or_default();
        FigureFile { families, starts: starts.iter().copied().map(Timestamp::from_millis).collect() }
    }

    /// The fields of a bucket by their column.
    fn fields(&self, bucket: usize) -> Vec<(String, FigureField)> {
        let mut fields = Vec::new();
        macro_rules! add {
            ($($family:ident),*) => {$(
                if let Some(bucket) = self.families.$family.as_ref().and_then(|family| family.series.get(bucket)) {
                    let columns = bucket.figures.columns().into_iter();
                    fields.extend(columns.map(|(name, field)| (format!(concat!(stringify!($family), ".{}"), name), field)));
                }
            )*};
        }
        add!(tickets, devices, vms, backups, workflows, webhooks, api_usage, searches);
        fields
    }

    fn read_page(&self, first: usize) -> RowBatch<FigureRow, usize> {
        let end = (first + PAGE_ROWS).min(self.starts.len());
        let row = |bucket: usize| {
            let fields = self.fields(bucket).into_iter().map(|(_, field)| field).collect();
            FigureRow { start: self.starts[bucket], fields }
        };
        RowBatch { rows: (first..end).map(row).collect(), next: (end < self.starts.len()).then_some(end) }
    }

    pub async fn stream<R: Route>(self, caller: Access<R>, streamer: Streamer) -> Result<Streamed> {
        let mut columns: Vec<Cow<'static, str>> = vec!["start".into()];
        columns.extend(self.fields(0).into_iter().map(|(name, _)| name.into()));
        let encoding = RowEncoding::Csv { columns, write: Box::new(write_row) };
        let read = move |first: Option<usize>| std::future::ready(Ok(self.read_page(first.unwrap_or_default())));
        Ok(streamer.stream_rows(caller, encoding, read).await?.with_file_name("analytics"))
    }
}

fn write_row(row: &FigureRow, line: &mut CsvLine<'_>) {
    line.push_plain(Some(row.start));
    for field in &row.fields {
        match field {
            FigureField::Number(number) => line.push_plain(*number),
            FigureField::Word(word) => line.push_optional(word.as_deref()),
        }
    }
}
