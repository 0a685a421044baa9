//! Pipelining of statements to PostgreSQL: all statements known so far are sent at once, and answered in the same order.
//!
//! Every awaited statement costs a round trip, in which two processes wake each other. So BEGIN, the deferred statements and
//! COMMIT are sent together with the awaited statement.

use std::pin::Pin;
use std::task::Poll;

use futures_util::TryStreamExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row as PgRow, Statement};

use crate::base::{Error, Timestamp};

use super::handle::mismatch;
use super::postgres_pool::Object;
use super::{Param, dialect};

/// Prepared statements per connection before all are prepared anew: more than the product has, so that only lists
/// with rare filters ever fill it.
const STATEMENTS_MAX: usize = 512;

/// A statement with its bound values.
pub(super) struct Asked<'a> {
    pub sql: &'a str,
    pub tenant: Option<&'a String>,
    pub args: Vec<&'a dyn Param>,
}

#[derive(Default)]
pub(super) struct Answer {
    pub rows: Vec<PgRow>,
    pub changed: u64,
    /// The database's time when the transaction began, from the statement that sets the tenant.
    pub began_at: Option<Timestamp>,
}

/// Why sending failed, and at which statement; none if BEGIN, COMMIT or setting the tenant failed.
pub(super) struct Refused {
    pub refusal: Refusal,
    pub place: Option<usize>,
}

pub(super) enum Refusal {
    Mismatch(Error),
    /// The tenant was set on another backend than the connection's own.
    OtherBackend,
    Postgres(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Refusal::Postgres(error)
    }
}

/// What is sent before the statements: the first message of a checkout sets the tenant, and begins the transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    Naming,
    BeginAndNaming,
}

/// What is sent after the statements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    Commit,
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send + 'a>>;

/// Sends the statements with their preamble and postamble, and awaits all results. The first failure is the cause: all
/// statements after it are refused because of it, COMMIT included.
pub(super) async fn send(
    client: &Object,
    (before, behind): (Before, Behind),
    visible: &str,
    asked: &[Asked<'_>],
) -> Result<Vec<Answer>, Refused> {
    // All are prepared first: a statement that is still being prepared would be sent after later ones.
    let mut statements = Vec::with_capacity(asked.len());
    for (place, asked) in asked.iter().enumerate() {
        let prepared = prepare_asked(client, asked).await;
        statements.push(prepared.map_err(|refusal| Refused { refusal, place: Some(place) })?);
    }
    let around = |refusal| Refused { refusal, place: None };
    let mut sent: Vec<Sent<'_>> = Vec::with_capacity(asked.len() + 3);
    if before != Before::Nothing {
        let begins = before == Before::BeginAndNaming;
        let naming = if begins { dialect::POSTGRES_SET_TENANT_TO_WRITE } else { dialect::POSTGRES_SET_TENANT };
        let naming = prepare(client, naming).await.map_err(|error| around(error.into()))?;
        if begins {
            sent.push(Box::pin(control(client, dialect::POSTGRES_BEGIN)));
        }
        sent.push(Box::pin(name_tenant(client, naming, visible, begins)));
    }
    let first = sent.len();
    for (statement, asked) in statements.iter().zip(asked) {
        sent.push(Box::pin(run(client, statement, asked)));
    }
    if behind == Behind::Commit {
        sent.push(Box::pin(control(client, dialect::POSTGRES_COMMIT)));
    }
    let answers = wait_in_order(sent).await.map_err(|(refusal, place)| {
        let place = place.checked_sub(first).filter(|place| *place < asked.len());
        Refused { refusal, place }
    })?;
    let began_at = answers.iter().find_map(|answer| answer.began_at);
    let mut answers: Vec<Answer> = answers.into_iter().skip(first).take(asked.len()).collect();
    if let Some(answer) = answers.last_mut() {
        answer.began_at = began_at;
    }
    Ok(answers)
}

/// The first poll of a future sends its statement. If one fails at once, it was not sent, and none after it is sent.
async fn wait_in_order(mut sent: Vec<Sent<'_>>) -> Result<Vec<Answer>, (Refusal, usize)> {
    let mut answers = Vec::with_capacity(sent.len());
    for (place, one) in sent.iter_mut().enumerate() {
        match std::future::poll_fn(|context| Poll::Ready(one.as_mut().poll(context))).await {
            Poll::Ready(answer) => answers.push(Some(answer.map_err(|refusal| (refusal, place))?)),
            Poll::Pending => answers.push(None),
        }
    }
    let mut all = Vec::with_capacity(sent.len());
    for (place, (one, answer)) in sent.into_iter().zip(answers).enumerate() {
        all.push(match answer {
            Some(answer) => answer,
            None => one.await.map_err(|refusal| (refusal, place))?,
        });
    }
    Ok(all)
}

async fn prepare_asked(client: &Object, asked: &Asked<'_>) -> Result<Statement, Refusal> {
    let statement = prepare(client, asked.sql).await?;
    // PostgreSQL itself refuses to prepare a statement that skips a parameter number.
    let (uses, bound) = (statement.params().len(), usize::from(asked.tenant.is_some()) + asked.args.len());
    if uses == bound { Ok(statement) } else { Err(Refusal::Mismatch(mismatch(asked.sql, uses, bound))) }
}

async fn prepare(client: &Object, sql: &str) -> Result<Statement, tokio_postgres::Error> {
    if client.statement_cache.size() >= STATEMENTS_MAX {
        client.statement_cache.clear();
    }
    client.prepare_cached(sql).await
}

async fn control(client: &Client, sql: &str) -> Result<Answer, Refusal> {
    client.batch_execute(sql).await?;
    Ok(Answer::default())
}

/// If it fails outside a transaction, the results of the statements after it are discarded.
async fn name_tenant(client: &Object, naming: Statement, visible: &str, begins: bool) -> Result<Answer, Refusal> {
    let row = client.query_one(&naming, &[&visible]).await?;
    // Another backend may even have a different statement under this name.
    if row.try_get(1).ok() != Some(client.backend) {
        return Err(Refusal::OtherBackend);
    }
    let began_at = if begins { Some(Timestamp::from_millis(row.try_get(2)?)) } else { None };
    Ok(Answer { began_at, ..Answer::default() })
}

async fn run(client: &Client, statement: &Statement, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let own = asked.tenant.map(|tenant| tenant as &(dyn ToSql + Sync));
    let params: Vec<&(dyn ToSql + Sync)> = own.into_iter().chain(asked.args.iter().map(|arg| *arg as _)).collect();
    let mut stream = std::pin::pin!(client.query_raw(statement, params).await?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok(Answer { rows, changed: stream.rows_affected().unwrap_or(0), began_at: None })
}
