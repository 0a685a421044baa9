//! Import of devices from a file: reading rows and reporting their errors.
//!
//! The columns are those of the exported files, so that a file can be exported, edited and imported again. Columns that only
//! reports fill are ignored, and the summary lists them.

pub mod store;

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;

use agent_reports::{LABEL_CHARS_MAX, normal_mac, real_uuid};
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::http::unguard_text;
use serde_json::{Map, Value};

use super::blank_device;
use crate::devices::actions::store::{TAGS_MAX, parse_tag};
use crate::devices::{Device, DeviceId, FullDevice};

/// Rows of one file. Larger imports are split into several files.
pub const ROWS_MAX: usize = 100_000;
/// Size of one line of NDJSON, which is an object of a few short fields.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Errors that are listed; more mean that the file as a whole is wrong.
pub const ERRORS_MAX: usize = 100;

kernel::string_enum! {
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
#[derive(Clone, Debug, Default)]
pub struct ImportRow {
    pub number: usize,
    /// An error was found in this row; the other columns are still checked.
    pub has_error: bool,
    pub id: Option<DeviceId>,
    /// The id or slug of the organization.
    pub organization: Option<String>,
    /// The values of the columns, which were all found valid.
    values: Vec<(&'static ImportColumn, Value)>,
    custom_fields: Map<String, Value>,
}

/// A parsed file.
#[derive(Debug, Default)]
pub struct ImportFile {
    pub rows: Vec<ImportRow>,
    pub errors: Vec<ImportRowError>,
    /// Columns that only reports fill.
    pub ignored_columns: Vec<String>,
}

/// A column, and how it sets its field of a device, or says what is wrong with the value.
type ImportColumn = (&'static str, fn(&mut Device, &Value) -> Result<(), String>);

const COLUMNS: [ImportColumn; 30] = [
    ("hostname", |device, value| set_value(&mut device.hostname, value, parse_label)),
    ("display_name", |device, value| set_value(&mut device.display_name, value, parse_label)),
    ("os.name", |device, value| set_value(&mut device.os.name, value, parse_label)),
    ("os.version", |device, value| set_value(&mut device.os.version, value, parse_label)),
    ("os.build", |device, value| set_value(&mut device.os.build, value, parse_label)),
    ("os.kernel", |device, value| set_value(&mut device.os.kernel, value, parse_label)),
    ("os.arch", |device, value| set_value(&mut device.os.arch, value, parse_label)),
    ("manufacturer", |device, value| set_value(&mut device.manufacturer, value, parse_label)),
    ("model", |device, value| set_value(&mut device.model, value, parse_label)),
    ("serial_number", |device, value| set_value(&mut device.serial_number, value, parse_label)),
    ("asset_tag", |device, value| set_value(&mut device.asset_tag, value, parse_label)),
    ("uuid", |device, value| set_value(&mut device.uuid, value, parse_uuid)),
    ("cpu.model", |device, value| set_value(&mut device.cpu.model, value, parse_label)),
    ("primary_ip", |device, value| set_value(&mut device.primary_ip, value, parse_ip)),
    ("primary_mac", |device, value| set_value(&mut device.primary_mac, value, parse_mac)),
    ("last_logged_user", |device, value| set_value(&mut device.last_logged_user, value, parse_label)),
    ("warranty.start_date", |device, value| set_value(&mut device.warranty.start_date, value, parse_date)),
    ("warranty.end_date", |device, value| set_value(&mut device.warranty.end_date, value, parse_date)),
    ("cpu.sockets", |device, value| set_value(&mut device.cpu.sockets, value, parse_number)),
    ("cpu.cores", |device, value| set_value(&mut device.cpu.cores, value, parse_number)),
    ("memory_bytes", |device, value| set_value(&mut device.memory_bytes, value, parse_number)),
    ("firmware", |device, value| set_value(&mut device.firmware, value, parse_label)),
    ("page_count", |device, value| set_value(&mut device.page_count, value, parse_number)),
    ("patch.pending", |device, value| set_value(&mut device.patch.pending, value, parse_number)),
    ("patch.failed", |device, value| set_value(&mut device.patch.failed, value, parse_number)),
    ("needs_reboot", |device, value| set_value(&mut device.needs_reboot, value, parse_flag)),
    ("patch.last_installed_at", |device, value| set_value(&mut device.patch.last_installed_at, value, parse_time)),
    ("type", |device, value| parse_enum(&text_of(value)).map(|kind| device.r#type = kind)),
    ("platform", |device, value| parse_enum(&text_of(value)).map(|platform| device.platform = platform)),
    (TAGS_COLUMN, |device, value| parse_tags(value).map(|tags| device.tags = tags)),
];
pub const TAGS_COLUMN: &str = "tags";
/// Columns that are no field of their own.
const ID_COLUMN: &str = "id";
const ORGANIZATION_COLUMN: &str = "organization";
const CUSTOM_COLUMN: &str = "custom_fields";
/// Columns that an import ignores.
const IGNORED_COLUMNS: [&str; 23] = [
    "status",
    "health",
    "last_boot_at",
    "warranty.status",
    "agent.name",
    "agent.version",
    "agent.device_id",
    "agent.tag",
    "possible_duplicate_of",
    "first_seen_at",
    "last_seen_at",
    "inventory_at",
    "deleted_at",
    "version",
    "created_at",
    "updated_at",
    "disks",
    "volumes",
    "nics",
    "software",
    "ports",
    "supplies",
    "history",
];

/// The names of all columns that a file may have.
fn column_names() -> impl Iterator<Item = &'static str> {
    [ID_COLUMN, ORGANIZATION_COLUMN, CUSTOM_COLUMN].into_iter().chain(COLUMNS.iter().map(|(name, _)| *name))
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
        if IGNORED_COLUMNS.contains(&name.as_str()) {
            if !file.ignored_columns.contains(name) {
                file.ignored_columns.push(name.clone());
            }
            continue;
        }
        let known = column_names().collect::<Vec<_>>().join(", ");
        let detail = format!("there is no column {name:?}; a file may have {known}, and custom.<name>");
        return Err(Error::internal(detail));
    }
    Ok(())
}

/// The column of a name in the file; every `custom.<name>` is part of the custom fields.
fn find_column(name: &str) -> Option<&'static str> {
    let name = if name == "organization_id" { ORGANIZATION_COLUMN } else { name };
    let found = column_names().find(|known| *known == name);
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
        let is_named =
            row.values.iter().any(|((name, _), _)| ["hostname", "display_name", "serial_number"].contains(name));
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
        match column {
            ID_COLUMN => self.id = Some(text_of(&value).parse().map_err(|_| "is not the id of a device".to_owned())?),
            ORGANIZATION_COLUMN => self.organization = Some(text_of(&value).into_owned()),
            CUSTOM_COLUMN => return self.set_custom_field(name, value),
            _ => {
                let Some(column) = COLUMNS.iter().find(|(known, _)| *known == column) else { return Ok(()) };
                // Tried here, so that errors are known before anything is written.
                (column.1)(&mut blank_device(Timestamp::from_millis(0)).device, &value)?;
                self.values.push((column, value));
            }
        }
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

    /// The tags as they stand in the file, if they are a text and not a list.
    fn tags_text(&self) -> Option<&str> {
        self.values.iter().find(|((name, _), _)| *name == TAGS_COLUMN)?.1.as_str()
    }

    /// Applies the values of the row to a device.
    pub fn apply_to(&self, full: &mut FullDevice) {
        for ((_, set_field), value) in &self.values {
            // A row has no value that cannot be set.
            let _ = set_field(&mut full.device, value);
        }
        full.device.custom_fields.extend(self.custom_fields.clone());
    }
}

/// A value as text; in a CSV file every value is one.
fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

fn set_value<T>(
    field: &mut Option<T>,
    value: &Value,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<(), String> {
    *field = Some(parse(&text_of(value))?);
    Ok(())
}

fn parse_uuid(text: &str) -> Result<String, String> {
    real_uuid(text).ok_or_else(|| "must be a UUID, and not a placeholder".to_owned())
}

fn parse_ip(text: &str) -> Result<String, String> {
    let address: IpAddr = text.parse().map_err(|_| "must be an IP address".to_owned())?;
    Ok(address.to_string())
}

fn parse_mac(text: &str) -> Result<String, String> {
    normal_mac(text).ok_or_else(|| "must be a hardware address".to_owned())
}

fn parse_number(text: &str) -> Result<i64, String> {
    let number: i64 = text.parse().map_err(|_| "must be a whole number".to_owned())?;
    if number < 0 { Err("must not be negative".to_owned()) } else { Ok(number) }
}

fn parse_flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "must be true or false".to_owned())
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| "must be an RFC 3339 time such as 2026-01-31T08:00:00Z".to_owned())
}

fn parse_enum<W: StringEnum>(text: &str) -> Result<W, String> {
    W::parse(text).ok_or_else(|| format!("must be {}", W::expected_names()))
}

/// The limits are those of reports, so that every exported value can be imported.
fn parse_label(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > LABEL_CHARS_MAX || text.chars().any(char::is_control) {
        return Err(format!("must be 1 to {LABEL_CHARS_MAX} characters, without control characters"));
    }
    Ok(text.to_owned())
}

/// Tags come as a list, or as a text with commas between them, as they are exported.
fn parse_tags(value: &Value) -> Result<Vec<String>, String> {
    let texts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect(),
        _ => text_of(value).split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect(),
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

/// The error of tags that are not written as the exported ones are.
pub const DOUBTFUL_TAGS: &str = "must be tags with commas between them, such as vip,berlin; this looks like a list in \
    another notation. If the tags are meant so, import them as a list, in a file of JSON lines";

/// Whether a text of tags looks like a list that is not separated by commas alone: one in JSON, with quotes or in brackets,
/// or with semicolons or bars. Taken for a comma list, its marks would become parts of tags.
fn is_other_notation(text: &str) -> bool {
    let is_enclosed = ["[]", "{}", "()"].iter().any(|pair| text.starts_with(&pair[..1]) && text.ends_with(&pair[1..]));
    let is_quoted =
        |tag: &str| tag.len() > 1 && ['"', '\''].iter().any(|mark| tag.starts_with(*mark) && tag.ends_with(*mark));
    text.contains([';', '|'])
        || (is_enclosed && (text.contains(',') || serde_json::from_str::<Vec<Value>>(text).is_ok()))
        || text.split(',').any(|tag| is_quoted(tag.trim()))
}

fn parse_date(text: &str) -> Result<String, String> {
    let is_date = text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some();
    if is_date { Ok(text.to_owned()) } else { Err("must be a date such as 2026-01-31".to_owned()) }
}
