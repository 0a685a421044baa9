//! Workflows and revisions as they are read from their rows.

use kernel::base::seal::SealedValue;
use kernel::base::{ActorRef, Result};
use kernel::store::{FromRow, Row};

use super::{Definition, Workflow};

kernel::columns! {
    /// A workflow with its current revision.
    pub struct WorkflowRecordColumns {
        id = "w.id", enabled = "w.enabled", revision = "w.revision", next_run_at = "w.next_run_at",
        definition = "r.definition", headers = "r.headers", saved_by_type = "r.saved_by_type",
        saved_by_id = "r.saved_by_id", saved_by_name = "r.saved_by_name", created_by_type = "w.created_by_type",
        created_by_id = "w.created_by_id", created_by_name = "w.created_by_name", version = "w.version",
        created_at = "w.created_at", updated_at = "w.updated_at",
    }
}

kernel::columns! {
    /// The columns of a revision that a run needs.
    pub struct RevisionColumns {
        workflow_name = "w.name", definition = "r.definition", headers = "r.headers", saved_by_type = "r.saved_by_type",
        saved_by_id = "r.saved_by_id", saved_by_name = "r.saved_by_name",
    }
}

/// A stored workflow: the record, and its sealed header values.
pub struct StoredWorkflow {
    pub record: Workflow,
    pub headers: SealedValue,
}

impl FromRow for StoredWorkflow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: WorkflowRecordColumns<usize> = WorkflowRecordColumns::AT;
        let Definition { name, on, input_schema, steps } = row.get_json(AT.definition)?;
        let record = kernel::read_record!(row, WorkflowRecordColumns => Workflow {
            id, enabled, revision, next_run_at, version, created_at, updated_at;
            name,
            on,
            input_schema,
            steps,
            saved_by: row.get_actor([AT.saved_by_type, AT.saved_by_id, AT.saved_by_name])?,
            created_by: row.get_actor([AT.created_by_type, AT.created_by_id, AT.created_by_name])?,
        });
        Ok(StoredWorkflow { record, headers: row.get(AT.headers)? })
    }
}

impl Workflow {
    /// The definition, with masked header values.
    pub fn to_definition(&self) -> Definition {
        let (name, on, input_schema) = (self.name.clone(), self.on.clone(), self.input_schema.clone());
        Definition { name, on, input_schema, steps: self.steps.clone() }
    }
}

/// A stored revision, with its header values still sealed.
pub struct StoredRevision {
    pub workflow_name: String,
    pub definition: Definition,
    pub headers: SealedValue,
    pub saved_by: ActorRef,
}

impl FromRow for StoredRevision {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: RevisionColumns<usize> = RevisionColumns::AT;
        Ok(StoredRevision {
            workflow_name: row.get(AT.workflow_name)?,
            definition: row.get_json(AT.definition)?,
            headers: row.get(AT.headers)?,
            saved_by: row.get_actor([AT.saved_by_type, AT.saved_by_id, AT.saved_by_name])?,
        })
    }
}
