//! Components, firmwares and supplies of a scanned device.

use super::super::text::{clean_label, parse_whole_number};
use super::{Chassis, ListedFirmware};

#[derive(Debug, Default)]
pub struct ComponentEntry {
    kind: Option<String>,
    chassis: Chassis,
}

impl ComponentEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "type" => self.kind = clean_label(value),
            "serial" => self.chassis.serial = clean_label(value),
            "manufacturer" => self.chassis.manufacturer = clean_label(value),
            "model" => self.chassis.model = clean_label(value),
            "firmware" => self.chassis.firmware = clean_label(value),
            "version" if self.chassis.firmware.is_none() => self.chassis.firmware = clean_label(value),
            _ => {}
        }
    }

    pub fn into_chassis(self) -> Option<Chassis> {
        self.kind.is_some_and(|kind| kind.eq_ignore_ascii_case("chassis")).then_some(self.chassis)
    }
}

#[derive(Debug, Default)]
pub struct FirmwareEntry {
    kind: Option<String>,
    version: Option<String>,
}

impl FirmwareEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "type" => self.kind = clean_label(value),
            "version" => self.version = clean_label(value),
            _ => {}
        }
    }

    pub fn into_listed(self) -> Option<ListedFirmware> {
        let is_main = self.kind.is_some_and(|kind| kind.eq_ignore_ascii_case("device"));
        self.version.map(|version| ListedFirmware { is_main, version })
    }
}

#[derive(Debug, Default)]
pub struct ConsumableEntry {
    name: Option<String>,
    kind: Option<String>,
    colour: Option<String>,
    value: Option<String>,
    unit: Option<String>,
    max: Option<i64>,
}

impl ConsumableEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "name" => self.name = clean_label(value),
            "type" => self.kind = clean_label(value),
            "color" => self.colour = clean_label(value),
            "value" => self.value = clean_label(value),
            "unit" => self.unit = clean_label(value),
            "max" => self.max = parse_whole_number(value),
            _ => {}
        }
    }

    /// The name is that of the older section: `toner` and `black` are `tonerblack`.
    pub fn into_supply(self) -> Option<(String, Option<i64>)> {
        let typed = self.kind.map(|kind| kind + &self.colour.unwrap_or_default().replace(' ', ""));
        let name = self.name.or(typed)?;
        Some((name, level_percent(&self.value.unwrap_or_default(), self.unit.as_deref(), self.max)))
    }
}

/// The level in percent. Printers also say "OK" or "WARNING", and negative numbers for "unknown" and for "some"; of those
/// and of an amount without its maximum there is no honest percentage.
pub fn level_percent(value: &str, unit: Option<&str>, max: Option<i64>) -> Option<i64> {
    let value = value.trim();
    let number = value.strip_suffix('%').unwrap_or(value).trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let amount = parse_whole_number(whole).filter(|_| parse_whole_number(fraction).is_some())?;
    let is_percent = value.ends_with('%') || unit.is_some_and(|unit| matches!(unit, "%" | "percent"));
    let percent = match max.filter(|&max| max > 0) {
        Some(max) if !is_percent => amount.checked_mul(100)? / max,
        None if !is_percent && unit.is_some() => return None,
        _ => amount,
    };
    (0..=100).contains(&percent).then_some(percent)
}
