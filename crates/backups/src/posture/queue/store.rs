//! SQL of the queue of what is pending: who enqueues needs not know how it is done.

use kernel::args;
use kernel::base::Result;
use kernel::store::Tx;

kernel::statements! {
    INSERT = "INSERT INTO backup_pending (tenant_id, kind, record_id, position) VALUES ($1, $2, $3, '')
        ON CONFLICT (tenant_id, kind, record_id) DO UPDATE SET position = ''";
}

/// What is pending for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingKind {
    Device,
    Organization,
    /// The policy of the tenant, an organization or a device was changed; or an organization has reported for the first time,
    /// by which its silent devices are judged.
    Policy,
    /// The same, of the organizations of a tenant, after its devices.
    Postures,
}

impl PendingKind {
    pub const ALL: [PendingKind; 4] =
        [PendingKind::Device, PendingKind::Organization, PendingKind::Policy, PendingKind::Postures];

    pub fn as_str(self) -> &'static str {
        match self {
            PendingKind::Device => "device",
            PendingKind::Organization => "organization",
            PendingKind::Policy => "policy",
            PendingKind::Postures => "postures",
        }
    }
}

pub async fn enqueue(tx: &mut Tx, kind: PendingKind, record: &str) -> Result<()> {
    tx.exec(INSERT, args![kind.as_str(), record]).await.map(drop)
}

/// Has all devices of the tenant (`""`), of an organization, or one device judged again.
pub async fn enqueue_sweep(tx: &mut Tx, owner: &str) -> Result<()> {
    enqueue(tx, PendingKind::Policy, owner).await
}
