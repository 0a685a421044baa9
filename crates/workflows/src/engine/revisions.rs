//! Compiled revisions. They never change, so each is compiled once and cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kernel::base::{ActorRef, Code, Error, Result, Secrets, TenantId, run_blocking};
use kernel::store::Db;

use super::super::check::{CompiledDefinition, compile_definition};
use super::super::{RunError, WorkflowId, store};
use super::EngineContext;

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

impl EngineContext {
    /// The compiled revision, or why it can no longer be run.
    pub(super) async fn get_revision(
        &self,
        db: &Db,
        id: WorkflowId,
        revision: i64,
    ) -> Result<Result<Arc<CompiledRevision>, RunError>> {
        match self.revisions.get(db, &self.node.secrets, id, revision).await {
            Ok(loaded) => Ok(Ok(loaded)),
            Err(error) if error.code() == Code::Unavailable => Err(error),
            Err(error) => {
                // A missing revision was just replaced, and is loaded again by its new number.
                if error.code() != Code::NotFound {
                    tracing::error!(%error, workflow = %id, revision, "failed to load workflow revision");
                }
                let fields = error.fields().iter().map(|field| format!(" {} {}.", field.pointer, field.detail));
                let detail = format!("This revision cannot be run any more.{}", fields.collect::<String>());
                Ok(Err(RunError { code: "invalid_definition".to_owned(), detail, step_id: None }))
            }
        }
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
        if let Some(cached) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(cached.clone());
        }
        let loaded = Arc::new(CompiledRevision::load_compiled(db, secrets, id, revision).await?);
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= REVISIONS_KEPT_MAX
            && let Some(any) = cache.keys().next().copied()
        {
            cache.remove(&any);
        }
        cache.insert(key, loaded.clone());
        Ok(loaded)
    }
}
