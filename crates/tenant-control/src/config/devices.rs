//! The arguments of `serve` about devices.

use clap::Args;
use kernel::base::{DAY_MS, HOUR_MS};

use fleet::devices::{DEVICES_MAX, DeviceSettings};

#[derive(Args, Clone, Copy, Debug)]
pub struct DeviceArgs {
    /// How often agents are told to report
    #[arg(long, value_name = "HOURS", env = "TENANT_CONTROL_DEVICE_REPORT_HOURS", default_value_t = 24,
          value_parser = clap::value_parser!(i64).range(1..=168))]
    pub device_report_hours: i64,
    /// A device not seen for this long is offline
    #[arg(long, value_name = "HOURS", env = "TENANT_CONTROL_DEVICE_OFFLINE_HOURS", default_value_t = 36,
          value_parser = clap::value_parser!(i64).range(1..=8760))]
    pub device_offline_hours: i64,
    /// A device not seen for this long is stale
    #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_DEVICE_STALE_DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(i64).range(1..=3650))]
    pub device_stale_days: i64,
    /// The most devices of one tenant: the report of a new one beyond is refused (an import is not)
    #[arg(long, value_name = "N", env = "TENANT_CONTROL_DEVICES_MAX", default_value_t = DEVICES_MAX,
          value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    pub devices_max: i64,
}

impl DeviceArgs {
    pub fn device_settings(self) -> DeviceSettings {
        DeviceSettings {
            report_hours: self.device_report_hours,
            offline_after_ms: self.device_offline_hours * HOUR_MS,
            stale_after_ms: self.device_stale_days * DAY_MS,
            devices_max: self.devices_max,
        }
    }

    /// A device must go offline before it becomes stale, and not before its next report is due.
    pub fn check_settings(self) -> Result<(), String> {
        let (hours, days) = (self.device_offline_hours, self.device_stale_days);
        if hours >= days * 24 {
            return Err(format!(
                "--device-offline-hours {hours} is not less than --device-stale-days {days}: a device is offline before it is stale."
            ));
        }
        if hours <= self.device_report_hours {
            return Err(format!(
                "--device-offline-hours {hours} is not more than --device-report-hours {}: every device would be offline \
                 before it reports again.",
                self.device_report_hours
            ));
        }
        Ok(())
    }
}
