//! What ingest keys declare.

use feature_kit::Feature;
use kernel::base::RecordId;
use kernel::store::references::Referrer;
use people::organizations::OrganizationId;

use super::store;

pub const FEATURE: Feature = Feature {
    name: "ingest_keys",
    statements: &[store::STATEMENTS],
    // Live keys as referrers of organizations.
    referrers: &[Referrer { prefix: OrganizationId::PREFIX, what: "ingest keys", find: store::OF_ORGANIZATION }],
    ..Feature::NEW
};
