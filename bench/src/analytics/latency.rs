//! What is asked over HTTP, one after the other on one connection, and how long the answers took.

use std::time::Instant;

use serde_json::Value;

use crate::harness::Outcome;
use crate::report::percentile;
use crate::tickets::client::Connection;

pub struct TimedQuery {
    name: &'static str,
    request: String,
    /// Of the slowest hundredth; none where it is only told.
    limit_ms: Option<f64>,
    ms: Vec<f64>,
    bytes: usize,
}

impl TimedQuery {
    pub fn new(name: &'static str, path: &str, key: &str, limit_ms: Option<f64>) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n");
        TimedQuery { name, request, limit_ms, ms: Vec::new(), bytes: 0 }
    }

    /// Asks so often. The first round warms up, and is not counted.
    pub async fn ask(&mut self, connection: &mut Connection, requests: usize, is_counted: bool) -> Outcome {
        for _ in 0..requests {
            let started = Instant::now();
            let (status, body) = connection.ask_bytes(self.request.as_bytes()).await?;
            let ms = started.elapsed().as_secs_f64() * 1e3;
            if status != 200 {
                return Err(format!("{status} {}: {}", String::from_utf8_lossy(body), self.request).into());
            }
            self.bytes = body.len();
            if is_counted {
                self.ms.push(ms);
            }
        }
        Ok(())
    }

    pub async fn read_answer(&self, connection: &mut Connection) -> Outcome<Value> {
        let answer = connection.ask(&self.request).await?;
        if answer.status != 200 {
            return Err(format!("{} {}: {}", answer.status, answer.body, self.request).into());
        }
        Ok(serde_json::from_str(answer.body)?)
    }

    pub fn p99(&self) -> f64 {
        percentile(self.ms.clone(), 990)
    }

    pub fn print(&self) {
        let (p50, p99) = (percentile(self.ms.clone(), 500), self.p99());
        let (name, count, kilobytes) = (self.name, self.ms.len(), self.bytes / 1_000);
        let told = format!("{name}: p50 {p50:.1} ms, p99 {p99:.1} ms of {count}, {kilobytes} kB");
        match self.limit_ms {
            Some(limit_ms) => {
                let verdict = if p99 < limit_ms { "met" } else { "MISSED" };
                println!("{told}; limit {limit_ms} ms: {:.2} of it ({verdict})", p99 / limit_ms);
            }
            None => println!("{told}"),
        }
    }
}

/// Whether these members of an answer are numbers above zero, or lists of so many: an empty answer would be a quick one.
pub fn check_answer(answer: &Value, numbers: &[&str], lists: &[(&str, usize)]) -> Outcome {
    for pointer in numbers {
        if answer.pointer(pointer).and_then(Value::as_f64).is_none_or(|number| number <= 0.0) {
            return Err(format!("{pointer} is {:?}", answer.pointer(pointer)).into());
        }
    }
    for (pointer, least) in lists {
        let length = answer.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
        if length < *least {
            return Err(format!("{pointer} has {length} of {least}").into());
        }
    }
    Ok(())
}
