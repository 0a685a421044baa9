//! What a file is measured against: one cursor over the same columns in the same order, and the same bytes written into a
//! socket that somebody reads. No tenant's turn, no credential, no pages, no record in between.

use std::io::{BufWriter, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use kernel::base::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use tenant_control::features::devices::DEVICE_LIST;

use super::file::{File, Reader};
use crate::harness::Outcome;

/// Those of the file in their order: how each is written.
const COLUMNS: [(&str, Form); 49] = [
    ("id", Form::Plain),
    ("hostname", Form::Text),
    ("display_name", Form::Text),
    ("type", Form::Plain),
    ("platform", Form::Plain),
    ("os_name", Form::Text),
    ("os_version", Form::Text),
    ("os_build", Form::Text),
    ("os_kernel", Form::Text),
    ("os_arch", Form::Text),
    ("status", Form::Plain),
    ("health", Form::Plain),
    ("organization_id", Form::Plain),
    ("manufacturer", Form::Text),
    ("model", Form::Text),
    ("serial_number", Form::Text),
    ("asset_tag", Form::Text),
    ("uuid", Form::Text),
    ("cpu_model", Form::Text),
    ("cpu_sockets", Form::Plain),
    ("cpu_cores", Form::Plain),
    ("memory_bytes", Form::Plain),
    ("firmware", Form::Text),
    ("page_count", Form::Plain),
    ("primary_ip", Form::Text),
    ("primary_mac", Form::Text),
    ("last_logged_user", Form::Text),
    ("last_boot_at", Form::Time),
    ("needs_reboot", Form::Plain),
    ("patch_pending", Form::Plain),
    ("patch_failed", Form::Plain),
    ("patch_last_installed_at", Form::Time),
    ("warranty_start_date", Form::Text),
    ("warranty_end_date", Form::Text),
    ("warranty_status", Form::Plain),
    ("agent_name", Form::Text),
    ("agent_version", Form::Text),
    ("agent_device_id", Form::Text),
    ("agent_tag", Form::Text),
    ("tags", Form::Words),
    ("custom_fields", Form::Text),
    ("possible_duplicate_of", Form::Plain),
    ("first_seen_at", Form::Time),
    ("last_seen_at", Form::Time),
    ("inventory_at", Form::Time),
    ("deleted_at", Form::Time),
    ("version", Form::Plain),
    ("created_at", Form::Time),
    ("updated_at", Form::Time),
];

#[derive(Clone, Copy)]
enum Form {
    /// Needs no care.
    Plain,
    /// Quoted where it must be, and no formula.
    Text,
    Time,
    /// A list, with commas between.
    Words,
}

/// The file of a tenant, its head aside.
pub fn export(database: &Path, tenant: &str, reader: Reader) -> Outcome<File> {
    let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    // As a reader of the store has it.
    connection.execute_batch("PRAGMA cache_size = -8192")?;
    let columns: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    if DEVICE_LIST.split(',').count() != COLUMNS.len() + 2 {
        return Err("the columns of a device have changed: number and sequence alone are in no file".into());
    }
    let sql = format!(
        "SELECT {} FROM devices INDEXED BY devices_live LEFT JOIN device_reports
         ON device_reports.tenant_id = devices.tenant_id AND device = number
         WHERE devices.tenant_id = ?1 AND deleted_at IS NULL ORDER BY number DESC",
        columns.join(", ")
    );
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let started = Instant::now();
    let read = std::thread::spawn(move || -> Outcome<File> {
        let mut stream = TcpStream::connect(address)?;
        reader.drain(&mut stream, started)
    });
    let (stream, _) = listener.accept()?;
    let mut out = BufWriter::with_capacity(1 << 17, stream);
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([tenant])?;
    let mut line = Vec::with_capacity(2_000);
    while let Some(row) = rows.next()? {
        line.clear();
        write_line(row, &mut line)?;
        out.write_all(&line)?;
    }
    drop(out.into_inner()?);
    read.join().map_err(|_| "the reader failed")?
}

fn write_line(row: &Row<'_>, line: &mut Vec<u8>) -> Outcome {
    for (place, (_, form)) in COLUMNS.iter().enumerate() {
        if place > 0 {
            line.push(b',');
        }
        match (row.get_ref(place)?, form) {
            (ValueRef::Null, _) => {}
            (ValueRef::Integer(at), Form::Time) => write!(line, "{}", Timestamp::from_millis(at))?,
            (ValueRef::Integer(number), _) => write!(line, "{number}")?,
            (ValueRef::Text(text), Form::Words) => {
                let words: Vec<&str> = serde_json::from_slice(text)?;
                write_text(words.join(",").as_bytes(), line);
            }
            (ValueRef::Text(text), Form::Text) => write_text(text, line),
            (ValueRef::Text(text), _) => line.extend_from_slice(text),
            _ => return Err("a value of another kind".into()),
        }
    }
    line.extend_from_slice(b"\r\n");
    Ok(())
}

fn write_text(text: &[u8], line: &mut Vec<u8>) {
    let guard: &[u8] =
        if matches!(text.first(), Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r' | b'\n')) { b"'" } else { b"" };
    if !text.iter().any(|byte| matches!(byte, b'"' | b',' | b'\r' | b'\n')) {
        line.extend_from_slice(guard);
        line.extend_from_slice(text);
        return;
    }
    line.push(b'"');
    line.extend_from_slice(guard);
    for byte in text {
        if *byte == b'"' {
            line.push(b'"');
        }
        line.push(*byte);
    }
    line.push(b'"');
}
