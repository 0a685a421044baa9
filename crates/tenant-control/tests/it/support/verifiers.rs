//! The signature of a delivery as others see it: the packages that receivers use, asked by `scripts/verifiers`.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::receiver::Received;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/verifiers");

/// A delivery, and the secret that its receiver knows.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    pub secret: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Case {
    pub fn of(secret: &str, received: &Received) -> Case {
        let body = String::from_utf8(received.body.clone()).expect("a body of text");
        Case { secret: secret.to_owned(), headers: received.headers.clone(), body }
    }
}

/// Who accepts.
#[expect(clippy::struct_excessive_bools, reason = "each is the verdict of another package")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdicts {
    pub python_standardwebhooks: bool,
    pub python_svix: bool,
    pub node_standardwebhooks: bool,
    pub node_svix: bool,
}

impl Verdicts {
    pub const ACCEPTED: Verdicts = Verdicts::all(true);
    pub const REFUSED: Verdicts = Verdicts::all(false);

    const fn all(accepted: bool) -> Verdicts {
        Verdicts {
            python_standardwebhooks: accepted,
            python_svix: accepted,
            node_standardwebhooks: accepted,
            node_svix: accepted,
        }
    }
}

/// Asks all packages about all cases, in their order. They know no clock but the real one and allow it five minutes.
/// A call takes most of a second, and the first one installs the packages: give it many cases.
pub fn verify(cases: &[Case]) -> Vec<Verdicts> {
    let input: String = cases.iter().map(|case| serde_json::to_string(case).unwrap() + "\n").collect();
    let mut script = Command::new(SCRIPT);
    let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = script.spawn().expect("scripts/verifiers starts");
    // A script that fails before it reads says so on stderr. It reads everything before it writes, so nobody waits.
    let _ = running.stdin.take().expect("its stdin").write_all(input.as_bytes());
    let ended = running.wait_with_output().expect("scripts/verifiers ends");
    assert!(ended.status.success(), "scripts/verifiers: {}", String::from_utf8_lossy(&ended.stderr));
    let verdicts = String::from_utf8(ended.stdout).unwrap();
    let verdicts: Vec<Verdicts> = verdicts.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(verdicts.len(), cases.len(), "one verdict for each case");
    verdicts
}
