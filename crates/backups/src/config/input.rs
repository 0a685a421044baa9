//! The body that sets a level.

use std::collections::HashSet;

use feature_kit::schedule::CronSchedule;
use fleet::devices::DeviceId;
use kernel::base::{FieldError, Label};
use kernel::http::{BodyField, BodyFields, FromBody};
use utoipa::ToSchema;

use crate::policy::{
    BackupSchedule, BackupTarget, ExcludedDevice, PolicyLevel, Retention, RpoHours, VerificationPolicy,
};

/// What a level sets. What is omitted, or null, is inherited; objects and lists are inherited whole, and an object needs all its
/// members.
#[derive(ToSchema)]
#[schema(as = BackupConfigInput, example = json!({
    "schedule": {"cron": "0 22 * * *", "timezone": "Europe/Berlin"}, "rpo_hours": {"server": 26, "workstation": 72},
    "targets": [
        {"name": "nas", "type": "nas", "media": "disk", "offsite": false, "immutable": false, "immutable_days": null},
        {"name": "b2", "type": "s3", "media": "object", "offsite": true, "immutable": true, "immutable_days": 30}
    ]
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the shape of the body, for the document; it is read into a level")]
pub struct BackupConfigBody {
    /// `false`: nothing is expected of the devices, and nothing is judged.
    enabled: Option<bool>,
    schedule: Option<BackupSchedule>,
    rpo_hours: Option<RpoHours>,
    retention: Option<Retention>,
    #[schema(max_items = 20)]
    targets: Option<Vec<BackupTarget>>,
    encryption_required: Option<bool>,
    verification: Option<VerificationPolicy>,
    /// Failures in a row from which on a device has the reason `failures`.
    #[schema(minimum = 1, maximum = 100)]
    alert_after_failures: Option<i64>,
    /// Devices that are not backed up, and why: of any organization in the policy of the tenant, of its own in that of an
    /// organization, and none in that of a device.
    #[schema(max_items = 1000)]
    excluded_devices: Option<Vec<ExcludedDevice>>,
}

/// A level, as a body sets it.
pub struct BackupConfigInput(pub PolicyLevel);

const TARGETS_MAX: usize = 20;
const EXCLUDED_MAX: usize = 1_000;
/// A leap year.
const RPO_HOURS_MAX: i64 = 366 * 24;
const KEPT_MAX: i64 = 10_000;
const IMMUTABLE_DAYS_MAX: i64 = 36_500;
const VERIFY_DAYS_MAX: i64 = 3_660;
const FAILURES_MAX: i64 = 100;

impl FromBody for BackupConfigInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let enabled = read(fields, "enabled", |field| field.read_boolean());
        let schedule = read(fields, "schedule", read_schedule);
        let rpo_hours = read(fields, "rpo_hours", read_rpo);
        let retention = read(fields, "retention", read_retention);
        let targets = read(fields, "targets", read_targets);
        let encryption_required = read(fields, "encryption_required", |field| field.read_boolean());
        let verification = read(fields, "verification", read_verification);
        let alert_after_failures = read(fields, "alert_after_failures", |field| field.read_integer(1..=FAILURES_MAX));
        let excluded_devices = read(fields, "excluded_devices", read_excluded);
        Some(BackupConfigInput(PolicyLevel {
            enabled: enabled?,
            schedule: schedule?,
            rpo_hours: rpo_hours?,
            retention: retention?,
            targets: targets?,
            encryption_required: encryption_required?,
            verification: verification?,
            alert_after_failures: alert_after_failures?,
            excluded_devices: excluded_devices?,
        }))
    }
}

/// An optional field, which may also be null. `None` means that it was invalid.
#[expect(clippy::option_option, reason = "as the fields that it reads")]
fn read<T>(
    fields: &mut BodyFields,
    name: &str,
    parse: impl FnOnce(&mut BodyField<'_>) -> Option<T>,
) -> Option<Option<T>> {
    fields.read_optional(name, |field| field.read_or_null(parse)).map(Option::flatten)
}

fn read_name(field: &mut BodyField<'_>) -> Option<String> {
    field.read_parsed("invalid_name", |text| Label::parse(text).map(Label::into_string))
}

fn read_schedule(field: &mut BodyField<'_>) -> Option<BackupSchedule> {
    let mut found = None;
    field.read_object(|fields| {
        let cron = fields.read_required("cron", |field| field.read_string());
        let timezone = fields.read_required("timezone", |field| field.read_string());
        let (cron, timezone) = (cron?, timezone?);
        match CronSchedule::parse(&cron, &timezone) {
            Ok(_) => found = Some(BackupSchedule { cron, timezone }),
            Err(error) => fields.report_field(error.field.name(), error.code, error.detail),
        }
        Some(())
    })?;
    found
}

fn read_rpo(field: &mut BodyField<'_>) -> Option<RpoHours> {
    field.read_object(|fields| {
        let server = fields.read_required("server", |field| field.read_integer(1..=RPO_HOURS_MAX));
        let workstation = fields.read_required("workstation", |field| field.read_integer(1..=RPO_HOURS_MAX));
        Some(RpoHours { server: server?, workstation: workstation? })
    })
}

fn read_retention(field: &mut BodyField<'_>) -> Option<Retention> {
    field.read_object(|fields| {
        let mut read = |name: &str| fields.read_required(name, |field| field.read_integer(0..=KEPT_MAX));
        let [keep_last, hourly, daily, weekly, monthly, yearly] =
            ["keep_last", "hourly", "daily", "weekly", "monthly", "yearly"].map(&mut read);
        Some(Retention {
            keep_last: keep_last?,
            hourly: hourly?,
            daily: daily?,
            weekly: weekly?,
            monthly: monthly?,
            yearly: yearly?,
        })
    })
}

fn read_targets(field: &mut BodyField<'_>) -> Option<Vec<BackupTarget>> {
    let mut names = HashSet::new();
    field.read_list(TARGETS_MAX, |field| read_target(field, &mut names))
}

fn read_target(field: &mut BodyField<'_>, names: &mut HashSet<String>) -> Option<BackupTarget> {
    field.read_object(|fields| {
        let name = fields.read_required("name", read_name);
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            fields.report_field("name", "duplicate", "is the name of another target");
        }
        let kind = fields.read_required("type", |field| field.read_enum());
        let media = fields.read_required("media", |field| field.read_enum());
        let offsite = fields.read_required("offsite", |field| field.read_boolean());
        let immutable = fields.read_required("immutable", |field| field.read_boolean());
        let days = |field: &mut BodyField<'_>| field.read_integer(1..=IMMUTABLE_DAYS_MAX);
        let immutable_days = read(fields, "immutable_days", days);
        if immutable == Some(false) && matches!(immutable_days, Some(Some(_))) {
            fields.report_field("immutable_days", "conflict", "needs immutable to be true");
        }
        Some(BackupTarget {
            name: name?,
            r#type: kind?,
            media: media?,
            offsite: offsite?,
            immutable: immutable?,
            immutable_days: immutable_days?,
        })
    })
}

fn read_verification(field: &mut BodyField<'_>) -> Option<VerificationPolicy> {
    field.read_object(|fields| {
        let mut read_days = |name: &str| {
            fields.read_required(name, |field| field.read_or_null(|field| field.read_integer(1..=VERIFY_DAYS_MAX)))
        };
        let (every_days, restore_test_every_days) = (read_days("every_days"), read_days("restore_test_every_days"));
        Some(VerificationPolicy { every_days: every_days?, restore_test_every_days: restore_test_every_days? })
    })
}

fn read_excluded(field: &mut BodyField<'_>) -> Option<Vec<ExcludedDevice>> {
    let mut ids: HashSet<DeviceId> = HashSet::new();
    field.read_list(EXCLUDED_MAX, |field| {
        field.read_object(|fields| {
            let id = fields.read_required("id", |field| field.read_reference());
            if let Some(id) = id
                && !ids.insert(id)
            {
                fields.report_field("id", "duplicate", "is excluded twice");
            }
            let reason = fields.read_required("reason", read_name);
            Some(ExcludedDevice { id: id?, reason: reason? })
        })
    })
}

/// Contradictions as errors of fields.
pub fn conflict_errors(conflicts: Vec<crate::policy::PolicyConflict>) -> Vec<FieldError> {
    let to_error = |conflict: crate::policy::PolicyConflict| FieldError {
        pointer: conflict.pointer.to_owned(),
        code: "conflict",
        detail: conflict.detail,
    };
    conflicts.into_iter().map(to_error).collect()
}
