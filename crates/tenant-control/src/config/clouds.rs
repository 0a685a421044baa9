//! Settings of clouds.

use ::clouds::{CloudEndpoints, CloudKind};
use clap::Args;
use cloud_fleet::settings::CloudSettings;
use kernel::base::{MINUTE_MS, Result};
use kernel::outbound::OutboundSettings;

#[derive(Args, Clone, Debug)]
pub struct CloudArgs {
    /// Where clouds of a kind are reached instead of their own address, such as aws=http://127.0.0.1:5000; repeatable
    #[arg(long, value_name = "KIND=URL", env = "TENANT_CONTROL_CLOUD_ENDPOINT", value_delimiter = ',',
          value_parser = CloudEndpoints::parse_option)]
    pub cloud_endpoint: Vec<(CloudKind, String)>,
    /// How often the machines of a region are read
    #[arg(long, value_name = "MINUTES", env = "TENANT_CONTROL_CLOUD_SYNC_MINUTES", default_value_t = 5,
          value_parser = clap::value_parser!(i64).range(1..=1440))]
    pub cloud_sync_minutes: i64,
}

impl CloudArgs {
    pub fn cloud_settings(&self, outbound: OutboundSettings) -> Result<CloudSettings> {
        let endpoints = CloudEndpoints(self.cloud_endpoint.iter().cloned().collect());
        let mut settings = CloudSettings::with_endpoints(endpoints, outbound)?;
        settings.sync_every_ms = self.cloud_sync_minutes * MINUTE_MS;
        Ok(settings)
    }
}
