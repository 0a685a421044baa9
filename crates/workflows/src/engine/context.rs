//! The state that all lanes of the engine share.

use std::sync::Arc;

use kernel::base::{Code, Result};
use kernel::jobs::ServerNode;
use kernel::store::Db;

use super::super::{RunError, WorkflowId, WorkflowSettings};
use super::revisions::{CompiledRevision, RevisionCache};

#[derive(Clone)]
pub struct EngineContext {
    pub node: ServerNode,
    pub settings: Arc<WorkflowSettings>,
    pub revisions: Arc<RevisionCache>,
}

impl EngineContext {
    /// Whether requests of steps wait because the operator holds outgoing traffic.
    pub fn is_holding_requests(&self) -> bool {
        self.node.outbound.is_holding()
    }

    /// The compiled revision, or why it can no longer be run.
    pub async fn get_revision(
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
