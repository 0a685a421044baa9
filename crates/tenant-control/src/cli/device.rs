//! `admin device`: imports, deletes, tags and merges devices.

use std::fs;
use std::path::PathBuf;

use clap::Subcommand;
use fleet::devices::actions::store::{change_tags, parse_tag};
use fleet::devices::{self, ChangeOrigin, Device, DeviceId};
use fleet::ingest_keys::{IngestKeyId, list_ingest_keys};
use fleet::inventory::import::store::{ImportSummary, import_devices};
use fleet::inventory::import::{self, ImportFormat};
use fleet::inventory::merge::store::merge_duplicate;
use fleet::inventory::store::delete_devices_of_key;
use kernel::base::{Error, Result, StringEnum};

use super::args::{TenantArgs, open_tenant};

#[derive(Subcommand)]
pub enum DeviceCommand {
    /// Make and change devices as a file says; a file with an error changes nothing
    Import {
        /// The file, or - for standard input
        #[arg(long)]
        file: PathBuf,
        /// csv or ndjson [default: by the name of the file]
        #[arg(long, value_parser = parse_format)]
        format: Option<ImportFormat>,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Take a device out of the inventory; if it reports again, it is a new one
    Delete {
        #[arg(long, value_parser = parse_id, required_unless_present = "ingest_key")]
        id: Option<DeviceId>,
        /// Instead of one device: all that this ingest key created and no other has reported
        #[arg(long, value_name = "ID", value_parser = parse_key_id, conflicts_with = "id")]
        ingest_key: Option<IngestKeyId>,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Add tags to a device, and take others away
    Tag {
        #[arg(long, value_parser = parse_id)]
        id: DeviceId,
        /// A tag to add; can be given several times
        #[arg(long, value_parser = parse_tag, required_unless_present = "remove")]
        add: Vec<String>,
        /// A tag to take away; can be given several times
        #[arg(long, value_parser = parse_tag)]
        remove: Vec<String>,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Merge two records of the same machine; the duplicate is deleted
    Merge {
        /// The device that stays
        #[arg(long, value_parser = parse_id)]
        id: DeviceId,
        /// The duplicate
        #[arg(long, value_parser = parse_id)]
        duplicate: DeviceId,
        #[command(flatten)]
        of: TenantArgs,
    },
}

fn parse_id(text: &str) -> Result<DeviceId, String> {
    text.parse().map_err(|_| "is not the id of a device, such as dev_01jd8z6v2mfkpb7h3q9xw5t4rd".to_owned())
}

fn parse_key_id(text: &str) -> Result<IngestKeyId, String> {
    text.parse().map_err(|_| "is not the id of an ingest key, such as ing_01jd8z6v2mfkpb7h3q9xw5t4re".to_owned())
}

fn parse_format(text: &str) -> Result<ImportFormat, String> {
    ImportFormat::parse(text).ok_or_else(|| format!("must be {}", ImportFormat::expected_names()))
}

pub async fn run(command: DeviceCommand) -> Result<()> {
    match command {
        DeviceCommand::Import { file, format, dry_run, of } => {
            let by_name = file.extension().and_then(|extension| ImportFormat::parse(extension.to_str()?));
            let format = format.or(by_name).ok_or_else(|| Error::internal("say --format csv or --format ndjson"))?;
            let read = if file.to_str() == Some("-") {
                import::read_import_file(format, std::io::stdin().lock())?
            } else {
                let opened = fs::File::open(&file);
                let opened = opened.map_err(|error| Error::internal(format!("{}: {error}", file.display())))?;
                import::read_import_file(format, std::io::BufReader::new(opened))?
            };
            let (_, _, db) = open_tenant(&of).await?;
            let imported = import_devices(&db, read, dry_run).await?;
            of.output().print_value(&imported, format_import)?;
            match (imported.errors.is_empty(), imported.nothing_written) {
                (true, _) => Ok(()),
                (false, true) => Err(Error::internal("nothing was imported: see the rows above")),
                // The check had passed, but an organization was archived or a device deleted since.
                (false, false) => Err(Error::internal(
                    "not everything was imported, because something changed meanwhile: fix the rows above and import \
                     the file again",
                )),
            }
        }
        DeviceCommand::Delete { ingest_key: Some(key), of, .. } => {
            let (_, _, db) = open_tenant(&of).await?;
            if !list_ingest_keys(&db).await?.iter().any(|known| known.id == key) {
                return Err(Error::internal(format!("there is no ingest key {key} in this tenant")));
            }
            let deleted = delete_devices_of_key(&db, key).await?;
            let summary = serde_json::json!({ "ingest_key_id": key, "deleted": deleted });
            of.output().print_value(&summary, |_| format!("{deleted} devices that only {key} reported were deleted."))
        }
        DeviceCommand::Delete { id: None, .. } => Err(Error::internal("say --id or --ingest-key")),
        DeviceCommand::Delete { id: Some(id), of, .. } => {
            let (_, _, db) = open_tenant(&of).await?;
            let deleted =
                db.write(async move |tx| devices::delete_device(tx, id, ChangeOrigin::Deliberate).await).await;
            let device = deleted.map_err(|error| unknown_device(id, error))?;
            of.output().print_value(&device, |device| format!("Device {} was deleted.", device.id))
        }
        DeviceCommand::Tag { id, add, remove, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let tagged = db.write(async move |tx| {
                devices::edit_device(tx, id, |full| change_tags(&mut full.device.tags, &add, &remove)).await
            });
            let device = tagged.await.map_err(|error| unknown_device(id, error))?;
            of.output().print_value(&device, |device: &Device| {
                format!("Device {} has the tags {}.", device.id, device.tags.join(", "))
            })
        }
        DeviceCommand::Merge { id, duplicate, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let merged = merge_duplicate(&db, id, duplicate).await;
            let device = merged.map_err(|error| Error::internal(error.detail()))?;
            of.output()
                .print_value(&device, |device: &Device| format!("Device {duplicate} was merged into {}.", device.id))
        }
    }
}

fn unknown_device(id: DeviceId, error: Error) -> Error {
    if error.code().status() == 404 {
        Error::internal(format!("there is no device {id} in this tenant"))
    } else {
        error
    }
}

fn format_import(imported: &ImportSummary) -> String {
    let ImportSummary { created, updated, unchanged, ignored_columns, errors, nothing_written: tried, .. } = imported;
    let mut lines: Vec<String> = errors
        .iter()
        .map(|error| match error.column.as_str() {
            "" => format!("row {} {}", error.row, error.detail),
            column => format!("row {}, {column}: {}", error.row, error.detail),
        })
        .collect();
    if !ignored_columns.is_empty() {
        lines.push(format!("Ignored columns, which only reports fill: {}.", ignored_columns.join(", ")));
    }
    let verb = if *tried { "would be" } else { "were" };
    lines.push(format!("{created} devices {verb} created, {updated} changed, {unchanged} left unchanged."));
    lines.join("\n")
}
