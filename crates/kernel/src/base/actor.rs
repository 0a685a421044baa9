//! Actors: every database handle carries one, so that audit and events know who acts.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::OperatorName;

/// What kind of actor it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    User,
    ApiKey,
    Workflow,
    System,
    Operator,
}

impl ActorKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ActorKind::User => "user",
            ActorKind::ApiKey => "api_key",
            ActorKind::Workflow => "workflow",
            ActorKind::System => "system",
            ActorKind::Operator => "operator",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [ActorKind::User, ActorKind::ApiKey, ActorKind::Workflow, ActorKind::System, ActorKind::Operator]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// Someone who did something, as every answer shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Actor)]
pub struct ActorRef {
    #[serde(rename = "type")]
    pub kind: ActorKind,
    /// Null for the service itself and for the operator at the command line.
    #[schema(required)]
    pub id: Option<String>,
    pub name: String,
}

/// How an actor proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    Session,
    ApiKey,
}

impl CredentialKind {
    pub fn as_str(self) -> &'static str {
        match self {
            CredentialKind::Session => "session",
            CredentialKind::ApiKey => "api_key",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorCredential {
    pub kind: CredentialKind,
    pub id: String,
}

/// An actor with its credential, address and request.
#[derive(Clone, Debug)]
pub struct Actor {
    pub who: ActorRef,
    pub credential: Option<ActorCredential>,
    pub address: Option<IpAddr>,
    pub request_id: Option<Arc<str>>,
    /// The workflow runs that led to this action.
    pub chain: WorkflowChain,
}

/// A chain of workflow runs, each triggered by the one before. Only a run has a chain that is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkflowChain {
    /// The number of runs.
    pub depth: i64,
    /// The tenant's sequence number at which the first run began.
    pub root: i64,
}

impl Actor {
    /// The service itself.
    pub fn for_system() -> Self {
        Actor::new_local(ActorKind::System, "system")
    }

    /// The operator at the command line, by their name in the operating system.
    pub fn for_operator(operator: &OperatorName) -> Self {
        Actor::new_local(ActorKind::Operator, operator.as_str())
    }

    /// A workflow that acts in a run. The run's id is the request id of everything it does.
    pub fn for_workflow(id: impl Display, name: &str, run: impl Display, chain: WorkflowChain) -> Self {
        let who = ActorRef { kind: ActorKind::Workflow, id: Some(id.to_string()), name: name.to_owned() };
        Actor { who, credential: None, address: None, request_id: Some(run.to_string().into()), chain }
    }

    fn new_local(kind: ActorKind, name: &str) -> Self {
        let who = ActorRef { kind, id: None, name: name.to_owned() };
        Actor { who, credential: None, address: None, request_id: None, chain: WorkflowChain::default() }
    }
}
