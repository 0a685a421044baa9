//! PostgreSQL: one checkout of the pool, and what its failures mean.
//!
//! Architecture invariant: a connection never goes back to the pool inside a transaction or in doubt; it is dropped.

use std::time::Duration;

use futures_util::{TryFutureExt, TryStreamExt, future};
use tokio::time::error::Elapsed;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row as PgRow, Statement};

use crate::base::{Error, Result, Timestamp};

use super::handle::{Handle, mismatch};
use super::postgres_fault::{fault, spoils};
use super::postgres_pool::{self, Object, Pool, no_connection, pooled};
use super::row::EachRow;
use super::{Args, FromRow, Options, Param, PostgresOptions, Row, Value, dialect};

/// How long one statement may take, seen from here: a little longer than the server's own limit, for a server that
/// no longer answers at all.
const ANSWER_MAX: Duration = Duration::from_secs(35);

/// Prepared statements per connection before all are prepared anew: more than the product has, so that only lists
/// with rare filters ever fill it.
const STATEMENTS_MAX: usize = 512;

/// Opens the pool and proves it with one connection, whose role must be one that row-level security holds back.
pub(super) async fn open(postgres: &PostgresOptions, options: &Options) -> Result<Pool> {
    let pool = postgres_pool::build(postgres, options)?;
    check_role(&pool, postgres.allow_superuser).await?;
    Ok(pool)
}

async fn check_role(pool: &Pool, allow_superuser: bool) -> Result<()> {
    let client = pool.get().await.map_err(no_connection)?;
    let row = client.query_one(dialect::POSTGRES_ROLE, &[]).await.map_err(fault)?;
    let (name, unbound) = <(String, bool)>::from_row(&Row::postgres(&row))?;
    if unbound && !allow_superuser {
        return Err(Error::internal(format!(
            "the database role \"{name}\" is a superuser or has BYPASSRLS, so PostgreSQL would not keep tenants \
             apart; use a role made with CREATE ROLE … LOGIN NOSUPERUSER NOBYPASSRLS, or pass --allow-superuser"
        )));
    }
    Ok(())
}

/// One checkout. Dropped in the middle of a transaction it takes its connection with it.
pub(super) struct Session {
    client: Option<Object>,
    state: State,
    began_at: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next statement is the first of a checkout that only reads.
    Reading,
    /// The next statement is the first of a transaction.
    Beginning,
    InTransaction,
    Broken,
}

impl Session {
    pub async fn for_reading(pool: &Pool) -> Result<Self> {
        Session::begin(pool, State::Reading).await
    }

    pub async fn for_writing(pool: &Pool) -> Result<Self> {
        Session::begin(pool, State::Beginning).await
    }

    async fn begin(pool: &Pool, state: State) -> Result<Self> {
        let client = Some(pool.get().await.map_err(no_connection)?);
        Ok(Session { client, state, began_at: None })
    }

    /// The database's own time when the transaction began.
    pub fn began_at(&self) -> Option<Timestamp> {
        self.began_at
    }

    pub async fn exec(&mut self, handle: &Handle, sql: &str, args: Args<'_>) -> Result<u64> {
        let answer = self.ask(handle, handle.bound(), sql, args).await?;
        if answer.rows.is_empty() {
            return Ok(answer.changed);
        }
        Err(Error::internal(format!("exec does not take a statement that returns rows: {sql}")))
    }

    /// Runs a statement once for each row of arguments, all sent at once. The transaction has begun already.
    pub async fn exec_each(&mut self, handle: &Handle, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        if self.state != State::InTransaction {
            return Err(Error::internal("many statements at once belong into a transaction that has begun"));
        }
        let client = self.client()?;
        let asked = rows.iter().map(|row| {
            let row: Vec<&dyn Param> = row.iter().map(|value| value as &dyn Param).collect();
            async move { ask(client, State::InTransaction, handle, handle.bound(), sql, &row).await }
        });
        // Polled in their order, so sent in their order.
        let answers = tokio::time::timeout(ANSWER_MAX, future::try_join_all(asked)).await;
        self.judge(answers).map(|answers| answers.iter().map(|answer| answer.changed).sum())
    }

    /// Runs statements that return no rows, all sent at once and in their order. The transaction has begun already.
    pub async fn exec_all(&mut self, handle: &Handle, statements: &[(&'static str, Vec<Value>)]) -> Result<()> {
        if self.state != State::InTransaction {
            return Err(Error::internal("many statements at once belong into a transaction that has begun"));
        }
        let client = self.client()?;
        // Prepared first, for one that waits for its plan would be overtaken.
        for (sql, _) in statements {
            client.prepare_cached(sql).await.map_err(|error| fault(error).of_statement(sql))?;
        }
        let asked = statements.iter().map(|(sql, values)| {
            let values: Vec<&dyn Param> = values.iter().map(|value| value as &dyn Param).collect();
            let asked = async move { ask(client, State::InTransaction, handle, handle.bound(), sql, &values).await };
            asked.map_err(move |refusal| (refusal, *sql))
        });
        // The first that was refused is the one at fault: those behind it are refused for its sake, and answered after it.
        let answers = tokio::time::timeout(ANSWER_MAX, future::try_join_all(asked)).await;
        let mut refused = None;
        let answers = answers.map(|answers| answers.map_err(|(refusal, sql)| (refused = Some(sql), refusal).1));
        self.judge(answers).map(drop).map_err(|error| match refused {
            Some(sql) => error.of_statement(sql),
            None => error,
        })
    }

    pub async fn ask_each(&mut self, handle: &Handle, sql: &str, args: Args<'_>, each: EachRow<'_>) -> Result<()> {
        let answer = self.ask(handle, handle.bound(), sql, args).await?;
        answer.rows.iter().try_for_each(|row| each(&Row::postgres(row)))
    }

    /// A single value by a statement of the store itself, to which no tenant is bound.
    pub async fn ask_unbound<T: FromRow>(&mut self, handle: &Handle, sql: &str, args: Args<'_>) -> Result<T> {
        let answer = self.ask(handle, None, sql, args).await?;
        let row = answer.rows.first().ok_or_else(|| Error::internal(format!("no answer to: {sql}")))?;
        T::from_row(&Row::postgres(row))
    }

    pub async fn prepare_check(&self, sql: &str) -> Result<()> {
        self.client()?.prepare(sql).await.map(drop).map_err(fault)
    }

    pub async fn commit(&mut self) -> Result<()> {
        self.end(dialect::POSTGRES_COMMIT).await
    }

    /// If it fails the connection is dropped, and with it goes the transaction: nothing is left to tell the caller.
    pub async fn rollback(&mut self) {
        let _ = self.end(dialect::POSTGRES_ROLLBACK).await;
    }

    async fn end(&mut self, sql: &str) -> Result<()> {
        // A job that asked nothing began nothing; a broken connection has nothing that could be ended.
        if self.state != State::InTransaction {
            return Ok(());
        }
        self.state = State::Broken;
        match tokio::time::timeout(ANSWER_MAX, self.client()?.batch_execute(sql)).await {
            Ok(Ok(())) => {
                self.state = State::Beginning;
                Ok(())
            }
            // Whether a COMMIT took place whose answer was lost, nobody knows: so it is never tried again here.
            Ok(Err(error)) => Err(fault(error)),
            Err(_) => Err(silent()),
        }
    }

    async fn ask(&mut self, handle: &Handle, tenant: Option<&String>, sql: &str, args: Args<'_>) -> Result<Answer> {
        let state = self.state;
        if state == State::Broken {
            return Err(Error::unavailable("the connection to the database was lost"));
        }
        if state == State::Beginning {
            // From here on a dropped future leaves a connection that may be inside a transaction.
            self.state = State::InTransaction;
        }
        let answer = tokio::time::timeout(ANSWER_MAX, ask(self.client()?, state, handle, tenant, sql, args)).await;
        let answer = self.judge(answer)?;
        self.began_at = answer.began_at.or(self.began_at);
        Ok(answer)
    }

    /// What an answer means for the connection.
    fn judge<T>(&mut self, answer: Result<Result<T, Refusal>, Elapsed>) -> Result<T> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Refusal::Mismatch(error))) => Err(error),
            Ok(Err(Refusal::OtherBackend)) => {
                self.state = State::Broken;
                Err(pooled())
            }
            Ok(Err(Refusal::Postgres(error))) => {
                if spoils(&error) {
                    self.state = State::Broken;
                }
                Err(fault(error))
            }
            Err(_) => {
                self.state = State::Broken;
                Err(silent())
            }
        }
    }

    fn client(&self) -> Result<&Object> {
        self.client.as_ref().ok_or_else(|| Error::internal("the checkout has ended"))
    }
}

/// A read that is dropped half-way may go back: what is still to come is read away by the driver, and the next
/// checkout names its tenant anew.
impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && matches!(self.state, State::InTransaction | State::Broken)
        {
            drop(Object::take(client));
        }
    }
}

fn silent() -> Error {
    Error::unavailable("the database did not answer in time")
}

struct Answer {
    rows: Vec<PgRow>,
    changed: u64,
    /// With the first statement of a transaction: the database's own time.
    began_at: Option<Timestamp>,
}

enum Refusal {
    Mismatch(Error),
    /// The tenant was named to another backend than the connection's own.
    OtherBackend,
    Postgres(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Refusal::Postgres(error)
    }
}

/// Sends the statement, and with the first of a checkout, without waiting for their answers, what must go before it:
/// the beginning of the transaction and the name of the tenant.
async fn ask(
    client: &Object,
    state: State,
    handle: &Handle,
    tenant: Option<&String>,
    sql: &str,
    args: Args<'_>,
) -> Result<Answer, Refusal> {
    let statement = prepare(client, sql).await?;
    let own = tenant.map(|tenant| tenant as &(dyn ToSql + Sync));
    let params: Vec<&(dyn ToSql + Sync)> = own.into_iter().chain(args.iter().map(|arg| *arg as _)).collect();
    // PostgreSQL itself refuses to prepare a statement that leaves out a number below its highest.
    if statement.params().len() != params.len() {
        return Err(Refusal::Mismatch(mismatch(sql, statement.params().len(), params.len())));
    }
    if state == State::InTransaction {
        return Ok(run(client, &statement, params).await?);
    }
    let writes = state == State::Beginning;
    let naming = if writes { dialect::POSTGRES_SET_TENANT_TO_WRITE } else { dialect::POSTGRES_SET_TENANT };
    let naming = prepare(client, naming).await?;
    let visible = handle.visible();
    let visible: [&(dyn ToSql + Sync); 1] = [&visible];
    let name_tenant = async {
        let row = client.query_one(&naming, &visible).await?;
        // Another backend may even have another statement of this name.
        if row.try_get(1).ok() != Some(client.backend) {
            return Err(Refusal::OtherBackend);
        }
        Ok(if writes { Some(Timestamp::from_millis(row.try_get(2)?)) } else { None })
    };
    let begin = async { Ok(client.batch_execute(dialect::POSTGRES_BEGIN).await?) };
    let run = async { Ok(run(client, &statement, params).await?) };
    // Polled in this order, so sent in this order; the server works them off one after the other. Should naming the
    // tenant fail outside a transaction, the answer to the statement is thrown away with it.
    if writes {
        let ((), began_at, answer) = future::try_join3(begin, name_tenant, run).await?;
        return Ok(Answer { began_at, ..answer });
    }
    Ok(future::try_join(name_tenant, run).await?.1)
}

async fn prepare(client: &Object, sql: &str) -> Result<Statement, tokio_postgres::Error> {
    if client.statement_cache.size() >= STATEMENTS_MAX {
        client.statement_cache.clear();
    }
    client.prepare_cached(sql).await
}

async fn run(
    client: &Client,
    statement: &Statement,
    params: Vec<&(dyn ToSql + Sync)>,
) -> Result<Answer, tokio_postgres::Error> {
    let mut stream = std::pin::pin!(client.query_raw(statement, params).await?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok(Answer { rows, changed: stream.rows_affected().unwrap_or(0), began_at: None })
}

/// Runs several statements as one message, for migrations alone.
pub(super) async fn batch(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(fault)
}
