//! Compiled revisions. They never change, so each is compiled once and cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kernel::base::{ActorRef, Error, Result, Secrets, TenantId, lock_unpoisoned, run_blocking};
use kernel::store::Db;

use super::super::check::{CompiledDefinition, compile_definition};
use super::super::{WorkflowId, store};

/// Revisions cached per node; a new one evicts another.
const REVISIONS_KEPT_MAX: usize = 256;

/// A compiled revision, with the saver whose authority its runs have.
pub struct CompiledRevision {
    pub compiled: CompiledDefinition,
    pub saved_by: ActorRef,
}

impl CompiledRevision {
    pub async fn load_compiled(db: &Db, secrets: &Secrets, id: WorkflowId, revision: i64) -> Result<Self> {
        let unsealed = store::get_revision(db, secrets, id, revision).await?;
        // Compiling hundreds of expressions takes a while.
        let definition = unsealed.definition;
        let compiled = run_blocking(move || compile_definition(&definition).map_err(Error::invalid_fields)).await?;
        Ok(CompiledRevision { compiled, saved_by: unsealed.saved_by })
    }
}

#[derive(Default)]
pub struct RevisionCache(Mutex<HashMap<(TenantId, WorkflowId, i64), Arc<CompiledRevision>>>);

impl RevisionCache {
    pub async fn get(
        &self,
        db: &Db,
        secrets: &Secrets,
        id: WorkflowId,
        revision: i64,
    ) -> Result<Arc<CompiledRevision>> {
        let tenant = db.tenant_id().ok_or_else(|| Error::internal("a workflow belongs to a tenant"))?;
        let key = (tenant, id, revision);
        if let Some(cached) = lock_unpoisoned(&self.0).get(&key) {
            return Ok(cached.clone());
        }
        let loaded = Arc::new(CompiledRevision::load_compiled(db, secrets, id, revision).await?);
        let mut cache = lock_unpoisoned(&self.0);
        if cache.len() >= REVISIONS_KEPT_MAX
            && let Some(any) = cache.keys().next().copied()
        {
            cache.remove(&any);
        }
        cache.insert(key, loaded.clone());
        Ok(loaded)
    }
}
