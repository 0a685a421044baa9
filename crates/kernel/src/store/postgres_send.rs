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

use super::handle::parameter_mismatch;
use super::postgres_pool::PooledClient;
use super::{Param, dialect};

/// Prepared statements per connection before all are prepared anew: more than the product has, so that only lists
/// with rare filters ever fill it.
const STATEMENTS_MAX: usize = 512;

/// A statement with its bound values.
pub(super) struct BoundStatement<'a> {
    pub sql: &'a str,
    pub tenant: Option<&'a String>,
    pub args: Vec<&'a dyn Param>,
}

#[derive(Default)]
pub(super) struct StatementResult {
    pub rows: Vec<PgRow>,
    pub changed: u64,
    /// The database's time when the transaction began, from the statement that sets the tenant.
    pub began_at: Option<Timestamp>,
}

/// Why sending failed, and at which statement; none if BEGIN, COMMIT or setting the tenant failed.
pub(super) struct SendFailure {
    pub cause: SendFailureCause,
    pub index: Option<usize>,
}

pub(super) enum SendFailureCause {
    Mismatch(Error),
    /// The tenant was set on another backend than the connection's own.
    OtherBackend,
    Postgres(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for SendFailureCause {
    fn from(error: tokio_postgres::Error) -> Self {
        SendFailureCause::Postgres(error)
    }
}

/// What is sent before the statements: the first message of a checkout sets the tenant, and begins the transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SendPreamble {
    Nothing,
    SetTenant,
    BeginAndSetTenant,
}

/// What is sent after the statements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SendPostamble {
    Nothing,
    Commit,
}

type StatementFuture<'a> = Pin<Box<dyn Future<Output = Result<StatementResult, SendFailureCause>> + Send + 'a>>;

/// Sends the statements with their preamble and postamble, and awaits all results. The first failure is the cause: all
/// statements after it are refused because of it, COMMIT included.
pub(super) async fn send_statements(
    client: &PooledClient,
    (preamble, postamble): (SendPreamble, SendPostamble),
    visible_tenant: &str,
    statements: &[BoundStatement<'_>],
) -> Result<Vec<StatementResult>, SendFailure> {
    // All are prepared first: a statement that is still being prepared would be sent after later ones.
    let mut prepared = Vec::with_capacity(statements.len());
    for (index, statement) in statements.iter().enumerate() {
        let result = prepare_bound(client, statement).await;
        prepared.push(result.map_err(|cause| SendFailure { cause, index: Some(index) })?);
    }
    let preamble_failure = |cause| SendFailure { cause, index: None };
    let mut sent: Vec<StatementFuture<'_>> = Vec::with_capacity(statements.len() + 3);
    if preamble != SendPreamble::Nothing {
        let begins = preamble == SendPreamble::BeginAndSetTenant;
        let set_tenant_sql = if begins { dialect::POSTGRES_SET_TENANT_TO_WRITE } else { dialect::POSTGRES_SET_TENANT };
        let set_tenant_statement =
            prepare_statement(client, set_tenant_sql).await.map_err(|error| preamble_failure(error.into()))?;
        if begins {
            sent.push(Box::pin(run_control(client, dialect::POSTGRES_BEGIN)));
        }
        sent.push(Box::pin(set_tenant(client, set_tenant_statement, visible_tenant, begins)));
    }
    let first = sent.len();
    for (prepared_statement, statement) in prepared.iter().zip(statements) {
        sent.push(Box::pin(run_statement(client, prepared_statement, statement)));
    }
    if postamble == SendPostamble::Commit {
        sent.push(Box::pin(run_control(client, dialect::POSTGRES_COMMIT)));
    }
    let answers = await_in_order(sent).await.map_err(|(cause, index)| {
        let index = index.checked_sub(first).filter(|index| *index < statements.len());
        SendFailure { cause, index }
    })?;
    let began_at = answers.iter().find_map(|answer| answer.began_at);
    let mut answers: Vec<StatementResult> = answers.into_iter().skip(first).take(statements.len()).collect();
    if let Some(answer) = answers.last_mut() {
        answer.began_at = began_at;
    }
    Ok(answers)
}

/// The first poll of a future sends its statement. If one fails at once, it was not sent, and none after it is sent.
async fn await_in_order(mut sent: Vec<StatementFuture<'_>>) -> Result<Vec<StatementResult>, (SendFailureCause, usize)> {
    let mut answers = Vec::with_capacity(sent.len());
    for (index, one) in sent.iter_mut().enumerate() {
        match std::future::poll_fn(|context| Poll::Ready(one.as_mut().poll(context))).await {
            Poll::Ready(answer) => answers.push(Some(answer.map_err(|cause| (cause, index))?)),
            Poll::Pending => answers.push(None),
        }
    }
    let mut all = Vec::with_capacity(sent.len());
    for (index, (one, answer)) in sent.into_iter().zip(answers).enumerate() {
        all.push(match answer {
            Some(answer) => answer,
            None => one.await.map_err(|cause| (cause, index))?,
        });
    }
    Ok(all)
}

async fn prepare_bound(client: &PooledClient, statement: &BoundStatement<'_>) -> Result<Statement, SendFailureCause> {
    let prepared = prepare_statement(client, statement.sql).await?;
    // PostgreSQL itself refuses to prepare a statement that skips a parameter number.
    let (uses, bound) = (prepared.params().len(), usize::from(statement.tenant.is_some()) + statement.args.len());
    if uses == bound {
        Ok(prepared)
    } else {
        Err(SendFailureCause::Mismatch(parameter_mismatch(statement.sql, uses, bound)))
    }
}

async fn prepare_statement(client: &PooledClient, sql: &str) -> Result<Statement, tokio_postgres::Error> {
    if client.statement_cache.size() >= STATEMENTS_MAX {
        client.statement_cache.clear();
    }
    client.prepare_cached(sql).await
}

async fn run_control(client: &Client, sql: &str) -> Result<StatementResult, SendFailureCause> {
    client.batch_execute(sql).await?;
    Ok(StatementResult::default())
}

/// If it fails outside a transaction, the results of the statements after it are discarded.
async fn set_tenant(
    client: &PooledClient,
    statement: Statement,
    visible_tenant: &str,
    begins: bool,
) -> Result<StatementResult, SendFailureCause> {
    let row = client.query_one(&statement, &[&visible_tenant]).await?;
    // Another backend may even have a different statement under this name.
    if row.try_get(1).ok() != Some(client.backend) {
        return Err(SendFailureCause::OtherBackend);
    }
    let began_at = if begins { Some(Timestamp::from_millis(row.try_get(2)?)) } else { None };
    Ok(StatementResult { began_at, ..StatementResult::default() })
}

async fn run_statement(
    client: &Client,
    prepared: &Statement,
    statement: &BoundStatement<'_>,
) -> Result<StatementResult, SendFailureCause> {
    let own = statement.tenant.map(|tenant| tenant as &(dyn ToSql + Sync));
    let params: Vec<&(dyn ToSql + Sync)> = own.into_iter().chain(statement.args.iter().map(|arg| *arg as _)).collect();
    let mut stream = std::pin::pin!(client.query_raw(prepared, params).await?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok(StatementResult { rows, changed: stream.rows_affected().unwrap_or(0), began_at: None })
}
