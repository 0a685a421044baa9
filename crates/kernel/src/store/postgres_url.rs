//! Parses the URL of a PostgreSQL database, with libpq's parameters for encryption, which the driver does not know.
//!
//! No message here repeats a part of the URL that could hold the password.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::base::{Error, Result};

use super::postgres_tls::{CertificateTrust, PostgresTls};

/// How long to try to reach the server, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long an idle connection gets its first TCP keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// How long sent data may stay unacknowledged before an unreachable server counts as gone.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// libpq's parameters that the driver would silently ignore, or refuse without a reason.
const UNSUPPORTED: [&str; 8] =
    ["sslcert", "sslkey", "sslpassword", "sslcrl", "sslcrldir", "passfile", "service", "gssencmode"];

pub(super) fn parse(url: &str) -> Result<(Config, PostgresTls)> {
    let (mut config, mode, root) = parse_parts(url)?;
    set_timeouts(&mut config);
    let (ssl_mode, trust) = parse_ssl_mode(&mode, root)?;
    // A Unix socket needs no encryption, and libpq does not try it.
    let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    config.ssl_mode(if local { SslMode::Disable } else { ssl_mode });
    Ok((config, PostgresTls::new(trust)?))
}

/// The driver's part of a URL, `sslmode` and `sslrootcert`.
fn parse_parts(url: &str) -> Result<(Config, String, Option<PathBuf>)> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(bad_url("it must begin with postgres://"));
    }
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut mode = "prefer".to_owned();
    let mut root = None;
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
        match name {
            "sslmode" => mode = value,
            "sslrootcert" => root = Some(PathBuf::from(value)),
            name if UNSUPPORTED.contains(&name) => {
                return Err(bad_url(&format!("the parameter {name} is not supported")));
            }
            _ => rest.push(pair),
        }
    }
    let stripped = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    // The driver's message could quote the rest of a password after an unescaped character.
    let config = stripped
        .parse()
        .map_err(|_| bad_url("special characters of the password must be percent-encoded, as in %40 for @"))?;
    Ok((config, mode, root))
}

/// The database that a URL names, as a URL without password and parameters, for messages.
pub(super) fn describe(url: &str) -> Result<String> {
    let (config, ..) = parse_parts(url)?;
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let name = match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]"),
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let port = config.get_ports().get(index).or(config.get_ports().first());
        name + &port.map(|port| format!(":{port}")).unwrap_or_default()
    });
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Ok(format!("postgres://{user}{}/{database}", hosts.collect::<Vec<_>>().join(",")))
}

/// Whether a URL holds a password. One that cannot be parsed may hold one.
pub(super) fn has_password(url: &str) -> bool {
    parse_parts(url).map_or(true, |(config, ..)| config.get_password().is_some())
}

fn set_timeouts(config: &mut Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    }
    config.keepalives(true).keepalives_idle(KEEPALIVE_IDLE);
    if config.get_application_name().is_none() {
        config.application_name("tenant-control");
    }
}

/// libpq's meaning of `sslmode`, except that `allow` tries encryption first, which promises no less.
fn parse_ssl_mode(mode: &str, root: Option<PathBuf>) -> Result<(SslMode, CertificateTrust)> {
    match (mode, root) {
        ("disable", _) => Ok((SslMode::Disable, CertificateTrust::Anyone)),
        ("allow" | "prefer", _) => Ok((SslMode::Prefer, CertificateTrust::Anyone)),
        ("require", None) => {
            tracing::warn!(
                "the connection to PostgreSQL is encrypted, but nothing proves who answers: use sslmode=verify-full \
                 with sslrootcert"
            );
            Ok((SslMode::Require, CertificateTrust::Anyone))
        }
        ("require" | "verify-ca", Some(root)) => Ok((SslMode::Require, CertificateTrust::Chain(root))),
        ("verify-full", Some(root)) => Ok((SslMode::Require, CertificateTrust::ChainAndName(root))),
        ("verify-ca" | "verify-full", None) => {
            Err(bad_url("sslmode verify-ca and verify-full need sslrootcert, the file of the trusted certificates"))
        }
        _ => Err(bad_url("sslmode must be disable, allow, prefer, require, verify-ca or verify-full")),
    }
}

fn bad_url(reason: &str) -> Error {
    Error::internal(format!("the database URL is not valid: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        parse(url).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_refusal_never_shows_the_password() {
        for url in [
            "mysql://u:hunter2@h/d",
            "postgres://u:hunter2@h:port/d",
            "postgres://u:hunter2@h/d?sslmode=sometimes",
            "postgres://u:hunter2@h/d?sslkey=hunter2",
        ] {
            let refusal = refusal(url);
            assert!(refusal.contains("database URL"), "{url}: {refusal}");
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
    }

    #[test]
    fn a_database_is_named_without_its_password() {
        for (url, named, secret) in [
            ("postgres://u:hunter2@h/d?sslmode=disable", "postgres://u@h:5432/d", true),
            ("postgresql://u@h:5433/d?password=hunter2", "postgres://u@h:5433/d", true),
            ("postgres://u@[::1]:5433/", "postgres://u@[::1]:5433/u", false),
            ("postgres://u@h1:1,h2:2/d?sslmode=require", "postgres://u@h1:1,h2:2/d", false),
            ("postgres://u@%2Frun%2Fpostgresql/d", "postgres://u@/run/postgresql:5432/d", false),
        ] {
            assert_eq!((describe(url).ok().as_deref(), has_password(url)), (Some(named), secret), "{url}");
        }
        assert!(describe("mysql://u:hunter2@h/d").is_err() && has_password("mysql://u:hunter2@h/d"));
    }

    #[test]
    fn the_mode_has_the_meaning_that_libpq_gives_it() {
        for (mode, expected) in
            [("disable", SslMode::Disable), ("allow", SslMode::Prefer), ("require", SslMode::Require)]
        {
            let parsed = parse(&format!("postgres://u@h/d?sslmode={mode}&application_name=x")).map(|parsed| parsed.0);
            assert_eq!(parsed.map(|config| config.get_ssl_mode()).ok(), Some(expected), "{mode}");
        }
        assert!(refusal("postgres://u@h/d?sslmode=verify-full").contains("sslrootcert"));
        assert!(refusal("postgres://u@h/d?sslmode=verify-ca&sslrootcert=/nowhere").contains("/nowhere"));
    }
}
