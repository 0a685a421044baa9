//! What a receiver can do to its sender.

use std::time::Duration;

use tokio::sync::watch;

use super::log::Verdict;

/// Often enough that a limit on idleness never strikes, so that only a limit on the whole helps the sender.
pub const DRIP_EVERY: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub enum Behaviour {
    /// An empty answer.
    Answer(u16),
    AnswerWith {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// 307, which asks the sender to send the same to another address.
    Redirect(String),
    RetryAfter {
        status: u16,
        seconds: u64,
    },
    /// 204 when the test opens the gate.
    Hold(Gate),
    /// This status when the test opens the gate; not for a success, which [`Behaviour::Hold`] is.
    HoldThen(Gate, u16),
    /// Resets the connection after the whole request is read.
    Reset,
    /// Resets the connection after the head, which names the path; the body is not read and the request not counted.
    /// [`super::Receiver::reset_connections`] does it before anything is read.
    ResetEarly,
    /// Never answers.
    Hang,
    /// A head that comes byte by byte and never ends.
    DripHead,
    /// 200, then a body that comes byte by byte and never ends.
    DripBody,
    /// 200, then a body without end, as fast as it is taken.
    EndlessBody,
    /// 200 with 2 MiB of headers.
    HugeHeaders,
    /// Something that is not HTTP.
    Garbage,
    /// 200 with less of a body than it promises, then the end.
    Truncated,
    /// This status and `Retry-After` with the beginning of a body. Then the connection ends, or the body goes on byte by
    /// byte and never ends. Not for a success.
    BreakOff {
        status: u16,
        seconds: u64,
        drips: bool,
    },
}

pub(super) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Behaviour {
    /// The answer of those that give a whole and ordinary one.
    pub(super) fn answer(&self) -> Option<Answer> {
        let (status, header) = match self {
            Behaviour::Answer(status) | Behaviour::HoldThen(_, status) => (*status, None),
            Behaviour::Hold(_) => (204, None),
            Behaviour::Redirect(to) => (307, Some(("location", to.clone()))),
            Behaviour::RetryAfter { status, seconds } => (*status, Some(("retry-after", seconds.to_string()))),
            Behaviour::AnswerWith { status, headers, body } => {
                return Some(Answer { status: *status, headers: headers.clone(), body: body.clone() });
            }
            _ => return None,
        };
        let headers = header.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        Some(Answer { status, headers, body: Vec::new() })
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self {
            // The acknowledgement comes with the opening of the gate.
            Behaviour::Hold(_) => Verdict::Refused,
            Behaviour::DripBody | Behaviour::EndlessBody | Behaviour::HugeHeaders | Behaviour::Truncated => {
                Verdict::Doubtful
            }
            other if other.answer().is_some_and(|answer| answer.is_success()) => Verdict::Acknowledged,
            _ => Verdict::Refused,
        }
    }
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let headers = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        // These two have no body, and may not speak of one.
        let length = match self.status {
            204 | 304 => String::new(),
            _ => format!("content-length: {}\r\n", self.body.len()),
        };
        let head = format!("HTTP/1.1 {} \r\n{}{length}", self.status, headers.collect::<String>());
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }
}

/// Holds requests until it is opened, which is for good.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    pub fn closed() -> Gate {
        Gate(watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub(in crate::support) async fn opened(&self) {
        // The sender is here, so it cannot be gone.
        drop(self.0.subscribe().wait_for(|open| *open).await);
    }
}
