//! PostgreSQL: the checkout of a pooled connection, and how its failures are handled.
//!
//! Architecture invariant: a connection inside a transaction, or in an unknown state, is dropped and never returned to the
//! pool.

use std::borrow::Cow;
use std::mem::take;
use std::time::Duration;

use tokio_postgres::{Client, Row as PgRow};

use crate::base::{Error, Result, Timestamp};

use super::handle::HandleContext;
use super::postgres_fault::{breaks_connection, map_postgres_error};
use super::postgres_pool::{self, Pool, PooledClient, map_pool_error, pooler_error};
use super::postgres_send::{
    BoundStatement, SendFailure, SendFailureCause, SendPostamble, SendPreamble, StatementResult, send_statements,
};
use super::row::RowCallback;
use super::values::to_params;
use super::{Args, FromRow, PostgresOptions, Row, StoreOptions, Value, dialect};

/// How long to wait for the answers to one message: a little longer than the server's own limit for one statement, for a
/// server that no longer answers at all.
const ANSWER_MAX: Duration = Duration::from_secs(35);

/// Opens the pool and checks with one connection that its role does not bypass row-level security.
pub(super) async fn open_pool(postgres: &PostgresOptions, options: &StoreOptions) -> Result<Pool> {
    let pool = postgres_pool::build_pool(postgres, options)?;
    check_role(&pool, postgres.allow_superuser).await?;
    Ok(pool)
}

async fn check_role(pool: &Pool, allow_superuser: bool) -> Result<()> {
    let client = postgres_pool::get_first(pool).await?;
    let row = client.query_one(dialect::POSTGRES_ROLE, &[]).await.map_err(map_postgres_error)?;
    let (name, unbound) = <(String, bool)>::from_row(&Row::from_postgres(&row))?;
    if unbound && !allow_superuser {
        return Err(Error::internal(format!(
            "the database role \"{name}\" is a superuser or has BYPASSRLS, so PostgreSQL would not keep tenants \
             apart; use a role made with CREATE ROLE … LOGIN NOSUPERUSER NOBYPASSRLS, or pass --allow-superuser"
        )));
    }
    Ok(())
}

/// One checkout. If it is dropped in the middle of a transaction, its connection is closed.
pub(super) struct PostgresSession {
    client: Option<PooledClient>,
    state: SessionState,
    began_at: Option<Timestamp>,
    /// Deferred statements in order; they are sent with the next awaited statement, or with the commit.
    deferred: Vec<DeferredStatement>,
    /// The rows of deferred queries, until they are fetched.
    answers: Vec<Option<Vec<PgRow>>>,
}

struct DeferredStatement {
    sql: Cow<'static, str>,
    values: Vec<Value>,
    answer_index: Option<usize>,
    /// Whether it is a statement of the store itself, to which no tenant is bound.
    is_unbound: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SessionState {
    /// The next statement is the first of a checkout that only reads.
    Reading,
    /// The next statement is the first of a transaction.
    Beginning,
    InTransaction,
    Broken,
}

impl PostgresSession {
    pub async fn for_reading(pool: &Pool) -> Result<Self> {
        PostgresSession::check_out(pool, SessionState::Reading).await
    }

    pub async fn for_writing(pool: &Pool) -> Result<Self> {
        PostgresSession::check_out(pool, SessionState::Beginning).await
    }

    async fn check_out(pool: &Pool, state: SessionState) -> Result<Self> {
        let client = Some(pool.get().await.map_err(map_pool_error)?);
        Ok(PostgresSession { client, state, began_at: None, deferred: Vec::new(), answers: Vec::new() })
    }

    /// The database's time when the transaction began.
    pub fn began_at(&self) -> Option<Timestamp> {
        self.began_at
    }

    pub async fn exec(&mut self, handle: &HandleContext, sql: &str, args: Args<'_>) -> Result<u64> {
        let answer = self.send_one(handle, handle.bound_tenant(), sql, args).await?;
        if answer.rows.is_empty() {
            return Ok(answer.changed);
        }
        Err(Error::internal(format!("exec does not take a statement that returns rows: {sql}")))
    }

    /// Runs a statement once for each row of arguments, all sent at once.
    pub async fn exec_each(&mut self, handle: &HandleContext, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        let statements = rows
            .iter()
            .map(|row| BoundStatement { sql, tenant: handle.bound_tenant(), args: to_params(row).collect() })
            .collect();
        let answers = self.send_all(handle, statements, SendPostamble::Nothing).await?;
        Ok(answers.iter().map(|answer| answer.changed).sum())
    }

    /// Defers a statement whose result is not needed, to be sent with the next awaited one.
    pub fn defer_statement(&mut self, sql: &'static str, values: Vec<Value>) {
        self.deferred.push(DeferredStatement { sql: sql.into(), values, answer_index: None, is_unbound: false });
    }

    /// Defers a query; [`PostgresSession::fetch_rows`] returns its rows by the returned number.
    pub fn defer_query(&mut self, sql: Cow<'static, str>, values: Vec<Value>) -> usize {
        self.push_deferred_query(sql, values, false)
    }

    /// Defers a query of the store itself, to which no tenant is bound.
    pub fn defer_unbound_query(&mut self, sql: &'static str, values: Vec<Value>) -> usize {
        self.push_deferred_query(sql.into(), values, true)
    }

    fn push_deferred_query(&mut self, sql: Cow<'static, str>, values: Vec<Value>, is_unbound: bool) -> usize {
        let number = self.answers.len();
        self.answers.push(None);
        self.deferred.push(DeferredStatement { sql, values, answer_index: Some(number), is_unbound });
        number
    }

    /// The rows of a deferred query, which is sent now if it has not been yet.
    pub async fn fetch_rows<T: FromRow>(&mut self, handle: &HandleContext, number: usize) -> Result<Vec<T>> {
        if self.answers.get(number).is_some_and(Option::is_none) {
            self.send_all(handle, Vec::new(), SendPostamble::Nothing).await?;
        }
        let rows = self.answers.get_mut(number).and_then(Option::take);
        let rows = rows.ok_or_else(|| Error::internal("a deferred query has no result"))?;
        rows.iter().map(|row| T::from_row(&Row::from_postgres(row))).collect()
    }

    pub async fn query_each(
        &mut self,
        handle: &HandleContext,
        sql: &str,
        args: Args<'_>,
        each: RowCallback<'_>,
    ) -> Result<()> {
        let answer = self.send_one(handle, handle.bound_tenant(), sql, args).await?;
        answer.rows.iter().try_for_each(|row| each(&Row::from_postgres(row)))
    }

    /// The first row of a query of the store itself, to which no tenant is bound.
    pub async fn query_unbound<T: FromRow>(&mut self, handle: &HandleContext, sql: &str, args: Args<'_>) -> Result<T> {
        let answer = self.send_one(handle, None, sql, args).await?;
        let row = answer.rows.first().ok_or_else(|| Error::internal(format!("no answer to: {sql}")))?;
        T::from_row(&Row::from_postgres(row))
    }

    pub async fn prepare_check(&self, sql: &str) -> Result<()> {
        self.get_client()?.prepare(sql).await.map(drop).map_err(map_postgres_error)
    }

    /// Begins the transaction of a write that has only deferred statements, so that the database's time is known.
    pub async fn begin_if_deferred(&mut self, handle: &HandleContext) -> Result<()> {
        if self.state == SessionState::Beginning && !self.deferred.is_empty() {
            self.send_all(handle, Vec::new(), SendPostamble::Nothing).await?;
        }
        Ok(())
    }

    /// Sends the deferred statements and the commit in one message. The commit is refused if any of them is.
    pub async fn commit(&mut self, handle: &HandleContext) -> Result<()> {
        match self.state {
            SessionState::InTransaction => {}
            // A write without statements has begun no transaction.
            SessionState::Beginning if self.deferred.is_empty() => return Ok(()),
            _ => return Err(Error::unavailable("nothing could be committed on this connection")),
        }
        self.send_all(handle, Vec::new(), SendPostamble::Commit).await?;
        self.state = SessionState::Beginning;
        Ok(())
    }

    /// If this fails, the connection is dropped, which ends the transaction; the caller need not know.
    pub async fn rollback(&mut self) {
        self.deferred.clear();
        if self.state != SessionState::InTransaction {
            return;
        }
        self.state = SessionState::Broken;
        let Ok(client) = self.get_client() else { return };
        let ended = tokio::time::timeout(ANSWER_MAX, client.batch_execute(dialect::POSTGRES_ROLLBACK)).await;
        if matches!(ended, Ok(Ok(()))) {
            self.state = SessionState::Beginning;
        }
    }

    async fn send_one(
        &mut self,
        handle: &HandleContext,
        tenant: Option<&String>,
        sql: &str,
        args: Args<'_>,
    ) -> Result<StatementResult> {
        let statements = vec![BoundStatement { sql, tenant, args: args.to_vec() }];
        let mut answers = self.send_all(handle, statements, SendPostamble::Nothing).await?;
        answers.pop().ok_or_else(|| Error::internal(format!("no answer to: {sql}")))
    }

    /// Sends the deferred statements and then these, and returns the results of these.
    async fn send_all(
        &mut self,
        handle: &HandleContext,
        statements: Vec<BoundStatement<'_>>,
        postamble: SendPostamble,
    ) -> Result<Vec<StatementResult>> {
        let preamble = match self.state {
            SessionState::Broken => return Err(Error::unavailable("the connection to the database was lost")),
            SessionState::Reading => SendPreamble::SetTenant,
            SessionState::Beginning => SendPreamble::BeginAndSetTenant,
            SessionState::InTransaction => SendPreamble::Nothing,
        };
        let deferred = take(&mut self.deferred);
        let earlier = deferred.iter().map(|DeferredStatement { sql, values, is_unbound, .. }| BoundStatement {
            sql,
            tenant: handle.bound_tenant().filter(|_| !is_unbound),
            args: to_params(values).collect(),
        });
        let all: Vec<BoundStatement<'_>> = earlier.chain(statements).collect();
        // If the future is dropped from here on, the connection may be inside a transaction, or have committed one.
        match (preamble, postamble) {
            (_, SendPostamble::Commit) => self.state = SessionState::Broken,
            (SendPreamble::BeginAndSetTenant, SendPostamble::Nothing) => self.state = SessionState::InTransaction,
            _ => {}
        }
        let sent = send_statements(self.get_client()?, (preamble, postamble), handle.visible_tenant(), &all);
        let mut answers = match tokio::time::timeout(ANSWER_MAX, sent).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(failure)) => return Err(self.handle_refusal(failure, &deferred)),
            Err(_) => {
                self.state = SessionState::Broken;
                return Err(Error::unavailable("the database did not answer in time"));
            }
        };
        self.began_at = answers.last().and_then(|answer| answer.began_at).or(self.began_at);
        let results = answers.split_off(deferred.len());
        for (DeferredStatement { answer_index, .. }, answer) in deferred.iter().zip(answers) {
            if let Some(slot) = answer_index.and_then(|number| self.answers.get_mut(number)) {
                *slot = Some(answer.rows);
            }
        }
        Ok(results)
    }

    /// Maps a failure to an error, and decides whether the connection can still be used.
    fn handle_refusal(&mut self, failure: SendFailure, deferred: &[DeferredStatement]) -> Error {
        // A commit after a statement that the database refused did not happen. If the answer to a commit was lost, its
        // outcome is unknown: so it is never retried here, and the connection is not used any more.
        let by_database = matches!(&failure.cause, SendFailureCause::Postgres(error) if error.as_db_error().is_some());
        if self.state == SessionState::Broken && failure.index.is_some() && by_database {
            self.state = SessionState::InTransaction;
        }
        let error = match failure.cause {
            SendFailureCause::Mismatch(error) => error,
            SendFailureCause::OtherBackend => {
                self.state = SessionState::Broken;
                pooler_error()
            }
            SendFailureCause::Postgres(error) => {
                if breaks_connection(&error) {
                    self.state = SessionState::Broken;
                }
                map_postgres_error(error)
            }
        };
        match failure.index.and_then(|index| deferred.get(index)) {
            Some(statement) => error.in_statement(&statement.sql),
            None => error,
        }
    }

    fn get_client(&self) -> Result<&PooledClient> {
        self.client.as_ref().ok_or_else(|| Error::internal("the checkout has ended"))
    }
}

/// The connection of a read that is dropped half-way may be reused: the driver discards the remaining rows, and the next
/// checkout sets its tenant again.
impl Drop for PostgresSession {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && matches!(self.state, SessionState::InTransaction | SessionState::Broken)
        {
            drop(PooledClient::take(client));
        }
    }
}

/// Runs several statements as one message, for migrations only.
pub(super) async fn execute_batch(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(map_postgres_error)
}
