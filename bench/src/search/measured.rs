//! What is asked in a round, and how long the answers took.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::queries::Query;
use crate::chance::Chance;
use crate::harness::Outcome;
use crate::report::percentile;
use crate::tickets::client::Connection;

/// One query to one kind of tenant in one round; then there are fewer answers, which is told.
pub const CELL_MAX: Duration = Duration::from_secs(4);

/// What is asked in one round.
#[derive(Clone, Copy)]
pub struct Asking {
    pub query: Query,
    pub is_largest: bool,
    pub round: usize,
    pub requests: usize,
}

impl Asking {
    /// The same for the server and for SQL, so that both are asked the same.
    pub fn chance(self, caller: usize, callers: usize) -> Chance {
        Chance::new((1 + self.round * callers + caller) as u64)
    }
}

/// What became of requests.
#[derive(Default)]
pub struct Measured {
    pub ms: Vec<f64>,
    pub hits: usize,
    /// Too broad, or the index was not there.
    pub refused: usize,
}

impl Measured {
    pub fn add(&mut self, other: Measured) {
        self.ms.extend(other.ms);
        self.hits += other.hits;
        self.refused += other.refused;
    }

    pub async fn time(&mut self, connection: &mut Connection, request: &str) -> Outcome {
        let started = Instant::now();
        let answer = connection.ask(request).await?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let is_refused = answer.status == 503 || answer.status == 400 && answer.body.contains("query_too_broad");
        if is_refused {
            self.refused += 1;
        } else if answer.status == 200 {
            self.ms.push(ms);
            self.hits += answer.body.matches("\"score\":").count();
        } else {
            return Err(format!("{} {}: {request}", answer.status, answer.body).into());
        }
        Ok(())
    }

    pub fn p99(&self) -> f64 {
        percentile(self.ms.clone(), 990)
    }

    pub fn spell(&self) -> String {
        let (p50, p999) = (percentile(self.ms.clone(), 500), percentile(self.ms.clone(), 999));
        let refused = if self.refused > 0 { format!(", {} refused", self.refused) } else { String::new() };
        format!("p50 {p50:.2}, p99 {:.2}, p99.9 {p999:.2} ms of {}{refused}", self.p99(), self.ms.len())
    }

    pub fn hits_each(&self) -> f64 {
        small(self.hits) / small(self.ms.len().max(1))
    }
}

/// What all callers have seen.
pub async fn gather(callers: JoinSet<Outcome<Measured>>) -> Outcome<Measured> {
    let mut measured = Measured::default();
    for ended in callers.join_all().await {
        measured.add(ended?);
    }
    Ok(measured)
}

/// Counts here are far below where this ends.
pub fn small(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

pub fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
