//! Who does something: carried by every database handle, so that audit and events need no caller.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::{Label, World};

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
pub struct Credential {
    pub kind: CredentialKind,
    pub id: String,
}

/// What the operator at the command line is called.
#[derive(Clone, Debug)]
pub struct OperatorName(Arc<str>);

impl OperatorName {
    /// None where it is not a name that people could read in the trail.
    pub fn parse(text: &str) -> Option<Self> {
        Label::parse(text).ok().map(|name| OperatorName(name.as_str().into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for OperatorName {
    fn default() -> Self {
        OperatorName("operator".into())
    }
}

/// An actor at work: who, by which credential, from where, in which request.
#[derive(Clone, Debug)]
pub struct Actor {
    pub who: ActorRef,
    pub credential: Option<Credential>,
    pub address: Option<IpAddr>,
    pub request_id: Option<Arc<str>>,
    /// What has led to this, where it was workflows.
    pub chain: Chain,
}

/// Runs of workflows, each set off by what the one before did. Nobody but a run has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// How many they are.
    pub depth: i64,
    /// Where in the tenant's sequence the first of them began.
    pub root: i64,
}

impl Actor {
    /// The service itself.
    pub fn system() -> Self {
        Actor::local(ActorKind::System, "system")
    }

    /// The operator at the command line, by the name that the operating system has for them.
    pub fn operator(world: &World) -> Self {
        Actor::local(ActorKind::Operator, world.operator.as_str())
    }

    /// A workflow that acts in a run of its own, under which everything it does is found.
    pub fn workflow(id: impl Display, name: &str, run: impl Display, chain: Chain) -> Self {
        let who = ActorRef { kind: ActorKind::Workflow, id: Some(id.to_string()), name: name.to_owned() };
        Actor { who, credential: None, address: None, request_id: Some(run.to_string().into()), chain }
    }

    fn local(kind: ActorKind, name: &str) -> Self {
        let who = ActorRef { kind, id: None, name: name.to_owned() };
        Actor { who, credential: None, address: None, request_id: None, chain: Chain::default() }
    }
}
