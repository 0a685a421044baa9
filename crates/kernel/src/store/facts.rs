//! The queue of facts: what each change contributes to figures, written in its transaction and added up after the commit.
//!
//! A fact is one row of a table without an index, so that the change waits for little; analytics takes rows away as it adds
//! them up. Deliberately left out: what facts say, and who adds them up.

use figures::Fact;

use crate::base::{DAY_MS, Error, Result, TenantId};

use super::{Tx, Value};

crate::statements! {
    INSERT = "INSERT INTO facts_queue (tenant_id, at, born_at, expires_at, body) VALUES ($1, $2, $3, $4, $5)";
}

/// How long a fact is kept after it was added up, counted from its own time. Sums are kept for good; without the facts, they
/// are exact to the quarter of an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactRetention {
    /// Of records that people change.
    Long,
    /// Of what a machine does all the time, such as requests.
    Short,
}

impl FactRetention {
    pub const fn as_millis(self) -> i64 {
        match self {
            FactRetention::Long => 400 * DAY_MS,
            FactRetention::Short => 2 * DAY_MS,
        }
    }
}

impl Tx {
    /// Records what a change contributes to figures. A fact without any is not written.
    pub async fn record_fact(&mut self, fact: &Fact, retention: FactRetention) -> Result<()> {
        if fact.is_empty() {
            return Ok(());
        }
        if self.tenant_id().is_none() {
            return Err(Error::internal("a fact belongs to a tenant"));
        }
        self.defer_exec(INSERT, fact_values(fact, retention)).await
    }
}

fn fact_values(fact: &Fact, retention: FactRetention) -> Vec<Value> {
    let expires_at = fact.at.saturating_add(retention.as_millis());
    vec![fact.at.into(), fact.born_at.into(), expires_at.into(), fact.body_bytes().into()]
}

/// Writes facts of any tenants, in a transaction of the system.
pub async fn insert_facts(tx: &mut Tx, facts: &[(TenantId, Fact)], retention: FactRetention) -> Result<()> {
    let with_tenant = |(tenant, fact): &(TenantId, Fact)| {
        let tenant = [Value::Text(tenant.to_string())];
        tenant.into_iter().chain(fact_values(fact, retention)).collect()
    };
    let rows: Vec<Vec<Value>> = facts.iter().filter(|(_, fact)| !fact.is_empty()).map(with_tenant).collect();
    tx.exec_each(INSERT, &rows).await.map(drop)
}
