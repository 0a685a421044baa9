//! Import of devices from a file: reading rows and reporting their errors.
//!
//! The columns are those of the exported files, so that a file can be exported, edited and imported again. Columns that only
//! reports fill are ignored, and the summary lists them.

pub mod store;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use agent_reports::{LABEL_CHARS_MAX, normal_mac, real_uuid};
use kernel::base::{Error, Result, Timestamp, Word};
use kernel::http::unguard_text;
use serde_json::{Map, Value};

use crate::devices::actions::store::{TAGS_MAX, parse_tag};
use crate::devices::{DeviceId, FullDevice, Platform, Type};

/// Rows of one file. Larger imports are split into several files.
pub const ROWS_MAX: usize = 100_000;
/// Size of one line of NDJSON, which is an object of a few short fields.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Errors that are listed; more mean that the file as a whole is wrong.
pub const ERRORS_MAX: usize = 100;

kernel::words! {
    #[schema(as = ImportFormat)]
    pub enum ImportFormat { Csv "csv", Ndjson "ndjson" }
}

/// An error in one row. The first row is 1; in CSV it is the one after the header.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ImportRowError {
    pub row: usize,
    pub column: String,
    pub detail: String,
}

/// A parsed row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportRow {
    pub number: usize,
    /// An error was found in this row; the other columns are still checked.
    pub has_error: bool,
    pub id: Option<DeviceId>,
    /// The id or slug of the organization.
    pub organization: Option<String>,
    /// The values by column.
    pub fields: BTreeMap<&'static str, ImportValue>,
    pub custom_fields: Map<String, Value>,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportValue {
    Text(String),
    Number(i64),
    Flag(bool),
    Time(Timestamp),
    Type(Type),
    Platform(Platform),
    Tags(Vec<String>),
}

/// A parsed file.
#[derive(Debug, Default)]
pub struct ImportFile {
    pub rows: Vec<ImportRow>,
    pub errors: Vec<ImportRowError>,
    /// Columns that only reports fill.
    pub ignored_columns: Vec<String>,
}

const TEXT_COLUMNS: [&str; 19] = [
    "hostname",
    "display_name",
    "os.name",
    "os.version",
    "os.build",
    "os.kernel",
    "os.arch",
    "manufacturer",
    "model",
    "serial_number",
    "asset_tag",
    "uuid",
    "cpu.model",
    "primary_ip",
    "primary_mac",
    "last_logged_user",
    "warranty.start_date",
    "warranty.end_date",
    "type",
];
const NUMBER_COLUMNS: [&str; 5] = ["cpu.sockets", "cpu.cores", "memory_bytes", "patch.pending", "patch.failed"];
/// Columns that an import ignores.
const IGNORED_COLUMNS: [&str; 17] = [
    "status",
    "health",
    "last_boot_at",
    "warranty.status",
    "agent.name",
    "agent.version",
    "agent.device_id",
    "possible_duplicate_of",
    "first_seen_at",
    "last_seen_at",
    "inventory_at",
    "deleted_at",
    "version",
    "created_at",
    "updated_at",
    "disks",
    "history",
];
const CUSTOM_COLUMN: &str = "custom_fields";

/// The columns that a file may have, for the error about an unknown one.
fn known_columns() -> String {
    let rest = ["id", "platform", "organization", "needs_reboot", "patch.last_installed_at", "tags", "custom_fields"];
    TEXT_COLUMNS.iter().chain(&NUMBER_COLUMNS).chain(&rest).copied().collect::<Vec<_>>().join(", ")
}

/// Reads a whole file.
pub fn read_import_file(format: ImportFormat, input: impl Read) -> Result<ImportFile> {
    match format {
        ImportFormat::Csv => read_csv(input),
        ImportFormat::Ndjson => read_ndjson(input),
    }
}

fn read_csv(input: impl Read) -> Result<ImportFile> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
    let names: Vec<String> = reader
        .headers()
        .map_err(unreadable_error)?
        .iter()
        .map(|name| name.trim_start_matches('\u{feff}').trim().to_owned())
        .collect();
    let mut file = ImportFile::default();
    check_columns(&names, &mut file)?;
    for (index, record) in reader.records().enumerate() {
        let number = index + 1;
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                file.add_error(number, "", format!("cannot be read: {error}"));
                continue;
            }
        };
        if record.len() != names.len() {
            file.add_error(number, "", format!("has {} fields, and there are {} columns", record.len(), names.len()));
            continue;
        }
        let values =
            names.iter().zip(record.iter()).map(|(name, text)| (name.clone(), Value::from(unguard_text(text.trim()))));
        file.add_row(number, values.filter(|(_, value)| value != "").collect())?;
    }
    Ok(file)
}

fn read_ndjson(input: impl Read) -> Result<ImportFile> {
    let (mut reader, mut file, mut number) = (BufReader::new(input), ImportFile::default(), 0);
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(unreadable_error)?;
        if read == 0 {
            return Ok(file);
        }
        number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(Value::Object(object)) => {
                let values = flatten_object(object);
                check_columns(&values.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), &mut file)?;
                file.add_row(number, values)?;
            }
            Ok(_) => file.add_error(number, "", "is not an object".to_owned()),
            Err(error) => file.add_error(number, "", format!("is not JSON: {error}")),
        }
    }
}

/// Turns nested objects into columns such as `os.name`. Custom fields stay an object.
fn flatten_object(object: Map<String, Value>) -> Vec<(String, Value)> {
    let mut values = Vec::new();
    for (name, value) in object {
        match value {
            Value::Null => {}
            Value::Object(inner) if name != CUSTOM_COLUMN => {
                let inner = inner.into_iter().filter(|(_, value)| !value.is_null());
                values.extend(inner.map(|(field, value)| (format!("{name}.{field}"), value)));
            }
            value => values.push((name, value)),
        }
    }
    values
}

fn unreadable_error(error: impl std::fmt::Display) -> Error {
    Error::internal(format!("the file cannot be read: {error}"))
}

fn check_columns(names: &[String], file: &mut ImportFile) -> Result<()> {
    if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(Error::internal(format!("the column {:?} stands there twice", twice.1)));
    }
    for name in names {
        if find_column(name).is_some() {
            continue;
        }
        if IGNORED_COLUMNS.contains(&name.as_str()) || ["volumes", "nics", "software"].contains(&name.as_str()) {
            if !file.ignored_columns.contains(name) {
                file.ignored_columns.push(name.clone());
            }
            continue;
        }
        let detail = format!("there is no column {name:?}; a file may have {}, and custom.<name>", known_columns());
        return Err(Error::internal(detail));
    }
    Ok(())
}

/// The column of a name in the file; every `custom.<name>` is part of the custom fields.
fn find_column(name: &str) -> Option<&'static str> {
    let name = if name == "organization_id" { "organization" } else { name };
    let rest = ["id", "platform", "organization", "needs_reboot", "patch.last_installed_at", "tags", CUSTOM_COLUMN];
    let found = TEXT_COLUMNS.iter().chain(&NUMBER_COLUMNS).chain(&rest).find(|known| **known == name).copied();
    found.or_else(|| name.strip_prefix("custom.").filter(|name| !name.is_empty()).map(|_| CUSTOM_COLUMN))
}

impl ImportFile {
    fn add_error(&mut self, row: usize, column: &str, detail: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(ImportRowError { row, column: column.to_owned(), detail });
        }
    }

    fn add_row(&mut self, number: usize, values: Vec<(String, Value)>) -> Result<()> {
        if self.rows.len() >= ROWS_MAX {
            return Err(Error::internal(format!("the file has more than {ROWS_MAX} rows: import it in parts")));
        }
        let mut row = ImportRow { number, ..ImportRow::default() };
        for (name, value) in values {
            if let Some(column) = find_column(&name)
                && let Err(detail) = row.set_column(column, &name, value)
            {
                row.has_error = true;
                self.add_error(number, &name, detail);
            }
        }
        let is_named = ["hostname", "display_name", "serial_number"].iter().any(|name| row.fields.contains_key(name));
        if row.id.is_none() && !is_named {
            row.has_error = true;
            self.add_error(number, "", "needs an id, a hostname, a display_name or a serial_number".to_owned());
        }
        self.rows.push(row);
        Ok(())
    }
}

impl ImportRow {
    fn set_column(&mut self, column: &'static str, name: &str, value: Value) -> Result<(), String> {
        let text = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let field = match column {
            "id" => {
                self.id = Some(text.parse().map_err(|_| "is not the id of a device".to_owned())?);
                return Ok(());
            }
            "organization" => {
                self.organization = Some(text);
                return Ok(());
            }
            CUSTOM_COLUMN => return self.set_custom_field(name, value),
            "type" => ImportValue::Type(parse_word(&text)?),
            "platform" => ImportValue::Platform(parse_word(&text)?),
            "needs_reboot" => ImportValue::Flag(text.parse().map_err(|_| "must be true or false".to_owned())?),
            "patch.last_installed_at" => ImportValue::Time(
                Timestamp::parse(&text).ok_or("must be an RFC 3339 time such as 2026-01-31T08:00:00Z")?,
            ),
            "tags" => ImportValue::Tags(parse_tags(&value, &text)?),
            "warranty.start_date" | "warranty.end_date" => ImportValue::Text(parse_date(&text)?),
            "uuid" => ImportValue::Text(real_uuid(&text).ok_or("must be a UUID, and not a placeholder")?),
            "primary_mac" => ImportValue::Text(normal_mac(&text).ok_or("must be a hardware address")?),
            "primary_ip" => {
                let address: std::net::IpAddr = text.parse().map_err(|_| "must be an IP address".to_owned())?;
                ImportValue::Text(address.to_string())
            }
            number if NUMBER_COLUMNS.contains(&number) => {
                let number: i64 = text.parse().map_err(|_| "must be a whole number".to_owned())?;
                ImportValue::Number(if number >= 0 { number } else { return Err("must not be negative".to_owned()) })
            }
            _ => ImportValue::Text(parse_label(&text)?),
        };
        self.fields.insert(column, field);
        Ok(())
    }

    /// Sets all custom fields from an object, or one from its own column.
    fn set_custom_field(&mut self, name: &str, value: Value) -> Result<(), String> {
        let Some(own) = name.strip_prefix("custom.") else {
            let object = match value {
                Value::Object(object) => object,
                Value::String(text) => serde_json::from_str(&text).map_err(|_| "must be a JSON object".to_owned())?,
                _ => return Err("must be a JSON object".to_owned()),
            };
            self.custom_fields.extend(object);
            return Ok(());
        };
        self.custom_fields.insert(own.to_owned(), value);
        Ok(())
    }

    /// Applies the values of the row to a device.
    pub fn apply_to(&self, full: &mut FullDevice) {
        let device = &mut full.device;
        for (column, field) in &self.fields {
            match (*column, field.clone()) {
                ("type", ImportValue::Type(kind)) => device.r#type = kind,
                ("platform", ImportValue::Platform(platform)) => device.platform = platform,
                ("needs_reboot", ImportValue::Flag(flag)) => device.needs_reboot = Some(flag),
                ("patch.last_installed_at", ImportValue::Time(at)) => device.patch.last_installed_at = Some(at),
                ("tags", ImportValue::Tags(tags)) => device.tags = tags,
                ("cpu.sockets", ImportValue::Number(number)) => device.cpu.sockets = Some(number),
                ("cpu.cores", ImportValue::Number(number)) => device.cpu.cores = Some(number),
                ("memory_bytes", ImportValue::Number(number)) => device.memory_bytes = Some(number),
                ("patch.pending", ImportValue::Number(number)) => device.patch.pending = Some(number),
                ("patch.failed", ImportValue::Number(number)) => device.patch.failed = Some(number),
                (column, ImportValue::Text(text)) => {
                    let target = match column {
                        "hostname" => &mut device.hostname,
                        "display_name" => &mut device.display_name,
                        "os.name" => &mut device.os.name,
                        "os.version" => &mut device.os.version,
                        "os.build" => &mut device.os.build,
                        "os.kernel" => &mut device.os.kernel,
                        "os.arch" => &mut device.os.arch,
                        "manufacturer" => &mut device.manufacturer,
                        "model" => &mut device.model,
                        "serial_number" => &mut device.serial_number,
                        "asset_tag" => &mut device.asset_tag,
                        "uuid" => &mut device.uuid,
                        "cpu.model" => &mut device.cpu.model,
                        "primary_ip" => &mut device.primary_ip,
                        "primary_mac" => &mut device.primary_mac,
                        "last_logged_user" => &mut device.last_logged_user,
                        "warranty.start_date" => &mut device.warranty.start_date,
                        "warranty.end_date" => &mut device.warranty.end_date,
                        _ => continue,
                    };
                    *target = Some(text);
                }
                _ => {}
            }
        }
        device.custom_fields.extend(self.custom_fields.clone());
    }
}

fn parse_word<W: Word>(text: &str) -> Result<W, String> {
    W::parse(text).ok_or_else(|| format!("must be {}", W::expected_words()))
}

/// The limits are those of reports, so that every exported value can be imported.
fn parse_label(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > LABEL_CHARS_MAX || text.chars().any(char::is_control) {
        return Err(format!("must be 1 to {LABEL_CHARS_MAX} characters, without control characters"));
    }
    Ok(text.to_owned())
}

/// Tags come as a list or as a text with commas.
fn parse_tags(value: &Value, text: &str) -> Result<Vec<String>, String> {
    let texts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect(),
        _ => text.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect(),
    };
    let mut tags: Vec<String> = Vec::new();
    for text in &texts {
        let tag = parse_tag(text)?;
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if tags.len() > TAGS_MAX {
        return Err(format!("must be at most {TAGS_MAX} tags"));
    }
    Ok(tags)
}

fn parse_date(text: &str) -> Result<String, String> {
    let is_date = text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some();
    if is_date { Ok(text.to_owned()) } else { Err("must be a date such as 2026-01-31".to_owned()) }
}
