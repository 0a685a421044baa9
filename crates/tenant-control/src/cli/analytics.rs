//! `admin analytics`: adds figures up again.

use clap::Subcommand;
use kernel::base::Result;

use super::args::CommonArgs;
use super::store;
use crate::features::rebuild;
use crate::features::rebuild::store::RebuildReport;

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
    let report = rebuild::store::rebuild_figures(&store).await?;
    common.output.print_value(&report, |report| {
        let RebuildReport { tenants, days, corrected } = report;
        let corrected = match corrected {
            0 => "The records say the same.".to_owned(),
            corrected => format!("How things stand was corrected by the records of {corrected} of them."),
        };
        format!("Added up again: {days} days of {tenants} tenants. {corrected}")
    })
}
