//! What people and programs ask of the inventory, with other values each time.

use kernel::base::{DAY_MS, HOUR_MS, Timestamp};

use super::data::{Makings, RARE_RELEASE, hostname, release, tag, version};
use super::load::Tenant;
use crate::chance::Chance;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Query {
    Newest,
    SecondPage,
    WithLists,
    Organization,
    Type,
    Platform,
    RarePlatform,
    Status,
    Health,
    Tag,
    Software,
    SoftwareOften,
    SoftwareVersion,
    SoftwareRareVersion,
    Hostname,
    Beginning,
    Address,
    TwoWords,
    QAndPlatform,
    OrganizationAndSoftware,
    OrganizationAndStatus,
    OrganizationAndHealth,
    HealthAndPlatform,
    TagAndStatus,
    SoftwareAndHealth,
    SoftwareAndTag,
    Nothing,
    UpdatedSince,
    UpdatedSinceOrganization,
    UpdatedSinceSoftware,
    Summary,
    SummaryOfOrganization,
}

impl Query {
    pub const ALL: [(Query, &'static str); 32] = [
        (Query::Newest, "newest 50"),
        (Query::SecondPage, "the page behind it"),
        (Query::WithLists, "newest 50 with all lists"),
        (Query::Organization, "organization"),
        (Query::Type, "type"),
        (Query::Platform, "platform=windows"),
        (Query::RarePlatform, "platform=other"),
        (Query::Status, "status=offline"),
        (Query::Health, "health=unhealthy"),
        (Query::Tag, "tag"),
        (Query::Software, "software"),
        (Query::SoftwareOften, "software, on most"),
        (Query::SoftwareVersion, "software@version"),
        (Query::SoftwareRareVersion, "software@version, rare"),
        (Query::Hostname, "q, a hostname"),
        (Query::Beginning, "q, start of a word"),
        (Query::Address, "q, hardware address"),
        (Query::TwoWords, "q, two words"),
        (Query::QAndPlatform, "q and platform"),
        (Query::OrganizationAndSoftware, "organization, software"),
        (Query::OrganizationAndStatus, "organization, status"),
        (Query::OrganizationAndHealth, "organization, health"),
        (Query::HealthAndPlatform, "health and platform"),
        (Query::TagAndStatus, "tag and status"),
        (Query::SoftwareAndHealth, "software and health"),
        (Query::SoftwareAndTag, "software and tag"),
        (Query::Nothing, "two that never meet"),
        (Query::UpdatedSince, "updated_since"),
        (Query::UpdatedSinceOrganization, "the same, organization"),
        (Query::UpdatedSinceSoftware, "the same, software"),
        (Query::Summary, "view=summary"),
        (Query::SummaryOfOrganization, "the same, organization"),
    ];

    pub fn is_summary(self) -> bool {
        matches!(self, Query::Summary | Query::SummaryOfOrganization)
    }

    /// The query string. What is sought is drawn as the devices were, so that what is frequent is sought often.
    pub fn spell(self, chance: &mut Chance, tenant: &Tenant, makings: &Makings, end: i64) -> String {
        let organization =
            |chance: &mut Chance| &tenant.organizations[makings.organization(chance, tenant.organizations.len())];
        let size = usize::try_from(tenant.size).unwrap_or(1);
        let software = |chance: &mut Chance| encoded(&makings.packages[makings.package(chance)]);
        let some = |chance: &mut Chance| hostname(1 + i64::try_from(chance.below(size)).unwrap_or(0));
        let since = |chance: &mut Chance| {
            let hours = i64::try_from(1 + chance.below(48)).unwrap_or(1);
            Timestamp::from_millis(end - hours * HOUR_MS - HOUR_MS).to_string()
        };
        match self {
            Query::Newest | Query::SecondPage => "limit=50".to_owned(),
            Query::WithLists => "limit=50&include=software,disks,volumes,nics".to_owned(),
            Query::Organization => format!("organization_id={}", organization(chance)),
            Query::Type => format!("type={}", ["server", "laptop", "virtual"][chance.below(3)]),
            Query::Platform => "platform=windows".to_owned(),
            Query::RarePlatform => "platform=other".to_owned(),
            Query::Status => "status=offline".to_owned(),
            Query::Health => "health=unhealthy".to_owned(),
            Query::Tag => format!("tag={}", tag(chance)),
            Query::Software => format!("software={}", software(chance)),
            Query::SoftwareOften => format!("software={}", encoded(&makings.packages[chance.below(10)])),
            Query::SoftwareVersion => {
                let package = makings.package(chance);
                format!("software={}@{}", encoded(&makings.packages[package]), version(package, release(chance)))
            }
            Query::SoftwareRareVersion => {
                let package = chance.below(10);
                format!("software={}@{}", encoded(&makings.packages[package]), version(package, RARE_RELEASE))
            }
            Query::Hostname => format!("q={}", some(chance)),
            Query::Beginning => format!("q={}", ["lat", "ber-ws", "thinkp", "srv", "10.0", "5"][chance.below(6)]),
            Query::Address => {
                let number = chance.below(size);
                format!("q=AC-1F-6B-00-{:02X}-{:02X}", number >> 8 & 255, number & 255)
            }
            Query::TwoWords => format!("q={}+latitude", ["ber", "zrh", "srv", "nb"][chance.below(4)]),
            Query::QAndPlatform => format!("q={}&platform=macos", ["ber", "zrh", "srv", "nb"][chance.below(4)]),
            Query::OrganizationAndSoftware => {
                format!("organization_id={}&software={}", organization(chance), software(chance))
            }
            Query::OrganizationAndStatus => format!("organization_id={}&status=offline", organization(chance)),
            Query::OrganizationAndHealth => format!("organization_id={}&health=unhealthy", organization(chance)),
            Query::HealthAndPlatform => "health=unhealthy&platform=macos".to_owned(),
            Query::TagAndStatus => format!("tag={}&status=stale", tag(chance)),
            Query::SoftwareAndHealth => format!("software={}&health=unhealthy", software(chance)),
            Query::SoftwareAndTag => format!("software={}&tag={}", software(chance), tag(chance)),
            // Each is frequent, and no device is all of it.
            Query::Nothing => "platform=windows&type=workstation&status=online&q=vm".to_owned(),
            Query::UpdatedSince => format!("updated_since={}", since(chance)),
            Query::UpdatedSinceOrganization => {
                let week = Timestamp::from_millis(end - 7 * DAY_MS);
                format!("updated_since={week}&organization_id={}", organization(chance))
            }
            Query::UpdatedSinceSoftware => format!("updated_since={}&software={}", since(chance), software(chance)),
            Query::Summary => "view=summary".to_owned(),
            Query::SummaryOfOrganization => format!("view=summary&organization_id={}", organization(chance)),
        }
    }
}

fn encoded(text: &str) -> String {
    text.replace(' ', "+")
}
