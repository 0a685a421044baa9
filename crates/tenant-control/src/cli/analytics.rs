//! `admin analytics`: adds figures up again.

use clap::Subcommand;
use kernel::base::Result;
use kernel::store::Purpose;

use super::args::CommonArgs;
use super::store;
use crate::features::rebuild;

#[derive(Subcommand)]
pub enum AnalyticsCommand {
    /// Add up the figures of all tenants again; the old ones serve until then
    Rebuild {
        #[command(flatten)]
        common: CommonArgs,
    },
}

pub async fn run(command: AnalyticsCommand) -> Result<()> {
    let AnalyticsCommand::Rebuild { common } = command;
    let store = store::open_store(&common.store).await?;
    let report = rebuild::store::rebuild_figures(&store.system(Purpose::Cli)).await?;
    common
        .output
        .print_value(&report, |report| format!("Added up again: {} days of {} tenants.", report.days, report.tenants))
}
