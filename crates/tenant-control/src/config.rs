//! Settings: a flag, else its environment variable, else the TOML file, else the default. An unknown setting is refused,
//! with the name that was probably meant.

mod clouds;
mod devices;
mod store;
mod workflows;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::workflows::WorkflowSettings;
use clap::builder::Command;
use clap::parser::ValueSource;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use kernel::base::{DAY_MS, Error, HOUR_MS, MINUTE_MS, Result, SECOND_MS, parse_network};
use kernel::http::{BaseUrl, HttpSettings, RatePolicy, TlsFiles};
use kernel::outbound;
use kernel::store::Store;
use people::sso::ProviderCache;
use search::service::SearchService;
use webhooks::{events::reader::FeedReaders, sender};

use crate::features::pages::{HealthMonitor, Library, StoreFlags};
use backups::job_reports::{REPORT_DAYS_DEFAULT, REPORT_DAYS_MIN, ReportSettings};
use clouds::CloudArgs;
use devices::DeviceArgs;
pub use store::StoreArgs;
use workflows::WorkflowArgs;

const VARIABLE_PREFIX: &str = "TENANT_CONTROL_";
/// The default data directory and listening address.
pub const DATA_DIR: &str = "./data";
pub const LISTEN: &str = "127.0.0.1:8080";
/// Milliseconds for which a request for the feed waits, so that tests that call every route do not wait long.
const NEWS_WAIT_VARIABLE: &str = "TENANT_CONTROL_TEST_NEWS_WAIT_MS";

/// Requests a second to a cloud, so that tests with a stand-in of a cloud do not wait long.
const CLOUD_REQUESTS_VARIABLE: &str = "TENANT_CONTROL_TEST_CLOUD_REQUESTS_PER_SECOND";

/// The user who runs this through sudo, if any.
pub fn sudo_user() -> Option<String> {
    std::env::var("SUDO_USER").ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Where clients reach the service; also what names the cookie.
#[derive(Args, Clone, Debug)]
pub struct UrlArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", env = "TENANT_CONTROL_LISTEN", default_value = LISTEN)]
    pub listen: SocketAddr,
    /// Where clients reach the service, as they write it [default: the listening address]
    #[arg(long, value_name = "URL", env = "TENANT_CONTROL_BASE_URL", value_parser = parse_base_url)]
    pub base_url: Option<BaseUrl>,
}

impl UrlArgs {
    /// The configured URL, else one made from the bound address.
    pub fn base_url(&self, bound: SocketAddr, tls: bool) -> Result<BaseUrl> {
        if let Some(url) = &self.base_url {
            return Ok(url.clone());
        }
        let mut address = bound;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        BaseUrl::parse(&format!("{}://{address}", if tls { "https" } else { "http" }))
    }
}

/// Where clients reach the service, as a command beside it is told.
#[derive(Args, Clone, Debug)]
pub struct LinkArgs {
    /// Where the server listens [default: as its URL says, or 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "TENANT_CONTROL_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Public URL of the service [default: that of the server last started on this store]
    #[arg(long, value_name = "URL", env = "TENANT_CONTROL_BASE_URL", value_parser = parse_base_url)]
    pub base_url: Option<BaseUrl>,
}

impl LinkArgs {
    /// The given URL or address, else the base URL that a server has saved in the store, else the default address.
    pub async fn base_url(&self, store: &Store) -> Result<BaseUrl> {
        let mut base_url = self.base_url.clone();
        // Port 0 means any free port, which only the server knows.
        let listen = self.listen.filter(|listen| listen.port() != 0);
        if base_url.is_none() && listen.is_none() {
            base_url = kernel::startup::find_base_url(store).await?;
        }
        let listen = listen.map_or_else(|| LISTEN.parse().map_err(Error::internal), Ok)?;
        UrlArgs { listen, base_url }.base_url(listen, false)
    }
}

/// How long people stay signed in.
#[derive(Args, Clone, Copy, Debug)]
pub struct SessionArgs {
    /// A session ends after this long without use
    #[arg(long, value_name = "MINUTES", env = "TENANT_CONTROL_SESSION_IDLE_MINUTES", default_value_t = 90,
          value_parser = clap::value_parser!(i64).range(1..=1440))]
    pub session_idle_minutes: i64,
    /// A session ends after this long in any case
    #[arg(long, value_name = "HOURS", env = "TENANT_CONTROL_SESSION_MAX_HOURS", default_value_t = 12,
          value_parser = clap::value_parser!(i64).range(1..=720))]
    pub session_max_hours: i64,
}

impl SessionArgs {
    pub fn idle_ms(self) -> i64 {
        self.session_idle_minutes * MINUTE_MS
    }

    pub fn max_ms(self) -> i64 {
        self.session_max_hours * HOUR_MS
    }
}

/// What the service may connect to by itself.
#[derive(Args, Clone, Debug)]
pub struct OutboundArgs {
    /// Private network that webhooks of every tenant may reach; repeatable
    #[arg(long, value_name = "CIDR", env = "TENANT_CONTROL_WEBHOOK_ALLOW_CIDR", value_delimiter = ',', value_parser = parse_cidr)]
    pub webhook_allow_cidr: Vec<IpNet>,
    /// Extra CA certificates to trust for outgoing connections, as PEM
    #[arg(long, value_name = "FILE", env = "TENANT_CONTROL_OUTBOUND_CA")]
    pub outbound_ca: Option<PathBuf>,
}

impl OutboundArgs {
    pub fn outbound_settings(&self) -> outbound::OutboundSettings {
        outbound::OutboundSettings {
            allow: self.webhook_allow_cidr.clone(),
            extra_roots: self.outbound_ca.clone(),
            ..outbound::OutboundSettings::default()
        }
    }
}

/// What `serve` can be told.
#[derive(Args, Clone)]
pub struct ServeArgs {
    #[command(flatten)]
    pub url: UrlArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    /// TLS certificate chain, as PEM
    #[arg(long, value_name = "FILE", env = "TENANT_CONTROL_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, as PEM
    #[arg(long, value_name = "FILE", env = "TENANT_CONTROL_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Proxy whose X-Forwarded-For is believed; repeatable
    #[arg(long, value_name = "CIDR", env = "TENANT_CONTROL_TRUSTED_PROXY", value_delimiter = ',', value_parser = parse_cidr)]
    pub trusted_proxy: Vec<IpNet>,
    /// Origin that browsers may call the API from; repeatable
    #[arg(long, value_name = "ORIGIN", env = "TENANT_CONTROL_CORS_ORIGIN", value_delimiter = ',', value_parser = parse_base_url)]
    pub cors_origin: Vec<BaseUrl>,
    /// Requests per minute of a policy, such as read=1200; repeatable
    #[arg(long, value_name = "POLICY=N", env = "TENANT_CONTROL_RATE_LIMIT", value_delimiter = ',', value_parser = parse_rate)]
    pub rate_limit: Vec<(RatePolicy, u64)>,
    /// Requests under way at once; more are answered 503
    #[arg(long, value_name = "N", env = "TENANT_CONTROL_MAX_IN_FLIGHT", default_value_t = 8192)]
    pub max_in_flight: usize,
    /// How long a connection is kept for the next request; longer than load balancers keep theirs
    #[arg(long, value_name = "SECONDS", env = "TENANT_CONTROL_KEEP_ALIVE_TIMEOUT", default_value_t = 75,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub keep_alive_timeout: u64,
    #[command(flatten)]
    pub session: SessionArgs,
    /// How long audit entries are kept
    #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_AUDIT_DAYS", default_value_t = 400,
          value_parser = clap::value_parser!(i64).range(1..=36500))]
    pub audit_days: i64,
    #[command(flatten)]
    pub outbound: OutboundArgs,
    /// Send no webhooks, requests of workflows or anything else by itself, as on a restored copy; it goes out after a start without this
    #[arg(long, env = "TENANT_CONTROL_HOLD_OUTGOING")]
    pub hold_outgoing: bool,
    /// Waits between delivery attempts, such as 5s,5m,2h; after the last one the delivery fails
    #[arg(long, value_name = "WAITS", env = "TENANT_CONTROL_WEBHOOK_SCHEDULE", value_parser = parse_schedule,
          default_value = "5s,5m,30m,2h,5h,10h,14h,20h,24h")]
    pub webhook_schedule: WebhookSchedule,
    /// Timeout of one delivery attempt, including the answer
    #[arg(long, value_name = "SECONDS", env = "TENANT_CONTROL_WEBHOOK_TIMEOUT", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=120))]
    pub webhook_timeout: u64,
    /// An endpoint that fails for this long is disabled
    #[arg(long, value_name = "HOURS", env = "TENANT_CONTROL_WEBHOOK_DISABLE_AFTER", default_value_t = 120,
          value_parser = clap::value_parser!(i64).range(1..=8760))]
    pub webhook_disable_after: i64,
    /// How long events, and so the payloads of deliveries, are kept
    #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_EVENT_DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(i64).range(1..=3650))]
    pub event_days: i64,
    /// How long deliveries and their attempts are kept
    #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_DELIVERY_DAYS", default_value_t = 90,
          value_parser = clap::value_parser!(i64).range(1..=3650))]
    pub delivery_days: i64,
    /// How long reports of backup jobs are kept; what is shown of them is kept apart
    #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_BACKUP_REPORT_DAYS", default_value_t = REPORT_DAYS_DEFAULT,
          value_parser = clap::value_parser!(i64).range(REPORT_DAYS_MIN..=3650))]
    pub backup_report_days: i64,
    #[command(flatten)]
    pub workflow: WorkflowArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub cloud: CloudArgs,
    /// Address for Prometheus to read /metrics from; off when not given
    #[arg(long, value_name = "ADDRESS", env = "TENANT_CONTROL_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// How log lines look
    #[arg(long, value_enum, env = "TENANT_CONTROL_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug; for parts of it, as in warn,kernel::outbound=debug
    #[arg(long, value_name = "FILTER", env = "TENANT_CONTROL_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

impl ServeArgs {
    pub fn tls_files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { certificate: self.tls_cert.clone()?, key: self.tls_key.clone()? })
    }

    pub fn server_settings(&self, base_url: BaseUrl) -> Result<HttpSettings> {
        let mut settings = HttpSettings::new(base_url);
        settings.trusted_proxies.clone_from(&self.trusted_proxy);
        for origin in &self.cors_origin {
            settings.cors_origins.push(origin.as_str().parse().map_err(Error::internal)?);
        }
        for (policy, per_minute) in &self.rate_limit {
            settings.rate_table.set(*policy, *per_minute);
        }
        settings.admission.requests_max = self.max_in_flight;
        settings.keep_alive_timeout = Duration::from_secs(self.keep_alive_timeout);
        settings.session_idle_ms = self.session.idle_ms();
        settings.session_absolute_ms = self.session.max_ms();
        settings.audit_retention_ms = self.audit_days * DAY_MS;
        settings.event_retention_ms = self.event_days * DAY_MS;
        settings.outbound = self.outbound.outbound_settings();
        settings.outbound.hold = self.hold_outgoing;
        settings.set_feature_settings(self.workflow_settings());
        settings.set_feature_settings(self.device.device_settings());
        settings.set_feature_settings(ReportSettings { kept_ms: self.backup_report_days * DAY_MS });
        let mut clouds = self.cloud.cloud_settings(settings.outbound.clone())?;
        clouds.requests_per_second = std::env::var(CLOUD_REQUESTS_VARIABLE).ok().and_then(|text| text.parse().ok());
        settings.set_feature_settings(clouds);
        settings.set_feature_settings(SearchService::default());
        settings.set_feature_settings(ProviderCache::default());
        settings.set_feature_settings(HealthMonitor::default());
        settings.set_feature_settings(Library::default());
        settings.set_feature_settings(StoreFlags(self.store.to_absolute_flags()));
        settings.set_feature_settings(FeedReaders::default());
        if let Some(ms) = std::env::var(NEWS_WAIT_VARIABLE).ok().and_then(|text| text.parse().ok()) {
            settings.news_wait_max = Duration::from_millis(ms);
        }
        Ok(settings)
    }

    /// How long the delivery log is kept.
    pub fn delivery_retention_ms(&self) -> i64 {
        self.delivery_days * DAY_MS
    }

    /// The settings of the webhook sender.
    pub fn sender_settings(&self) -> sender::SenderSettings {
        sender::SenderSettings {
            schedule_ms: self.webhook_schedule.0.clone(),
            timeout: Duration::from_secs(self.webhook_timeout),
            auto_disable_ms: self.webhook_disable_after * HOUR_MS,
            ..sender::SenderSettings::default()
        }
    }

    /// The settings of workflows.
    pub fn workflow_settings(&self) -> WorkflowSettings {
        self.workflow.workflow_settings(self.event_days)
    }

    /// Checks that settings are consistent with each other.
    pub fn check_settings(&self) -> Result<(), String> {
        self.workflow.check_settings(self.event_days)?;
        self.device.check_settings()?;
        if self.event_days <= self.delivery_days {
            return Ok(());
        }
        Err(format!(
            "--event-days {} is more than --delivery-days {}: a recovery would send again what had succeeded, because the log \
             of it is gone. Keep deliveries at least as long as events.",
            self.event_days, self.delivery_days
        ))
    }
}

fn parse_base_url(text: &str) -> Result<BaseUrl, String> {
    BaseUrl::parse(text).map_err(|error| error.cause_chain().unwrap_or_default())
}

fn parse_cidr(text: &str) -> Result<IpNet, String> {
    parse_network(text).ok_or_else(|| "must be a network such as 10.0.0.0/8".to_owned())
}

/// The waits between delivery attempts, in milliseconds.
#[derive(Clone, Debug)]
pub struct WebhookSchedule(pub Vec<i64>);

/// More attempts than this do not help any endpoint.
const ATTEMPTS_MAX: usize = 50;
/// A longer wait could outlive the payload.
const WAIT_MAX_MS: i64 = 7 * DAY_MS;

fn parse_schedule(text: &str) -> Result<WebhookSchedule, String> {
    let wait = |word: &str| {
        let split = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let (number, unit) = word.split_at(split);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => SECOND_MS,
            "m" => MINUTE_MS,
            "h" => HOUR_MS,
            _ => return None,
        };
        let ms = number.parse::<i64>().ok()?.checked_mul(unit_ms)?;
        (1..=WAIT_MAX_MS).contains(&ms).then_some(ms)
    };
    let waits: Option<Vec<i64>> = text.split(',').map(|word| wait(word.trim())).collect();
    let waits = waits.filter(|waits| waits.len() <= ATTEMPTS_MAX);
    waits
        .map(WebhookSchedule)
        .ok_or_else(|| "write waits such as 5s,5m,2h: at most 50, each of ms, s, m or h and up to 168h".to_owned())
}

fn parse_rate(text: &str) -> Result<(RatePolicy, u64), String> {
    let names = || RatePolicy::ALL.map(RatePolicy::name).join(", ");
    let (policy, per_minute) =
        text.split_once('=').ok_or_else(|| format!("write POLICY=N, where POLICY is one of {}", names()))?;
    let policy =
        RatePolicy::parse(policy).ok_or_else(|| format!("unknown policy {policy:?}; known are {}", names()))?;
    let per_minute = per_minute.parse().ok().filter(|n| *n > 0).ok_or("N must be a whole number above 0")?;
    Ok((policy, per_minute))
}

/// The arguments, with the settings of the TOML file added for the command that they name.
pub fn with_file(mut arguments: Vec<OsString>, root: &Command) -> Result<Vec<OsString>, String> {
    check_environment(root)?;
    // Missing arguments may be in the file. Errors are reported by the parse that follows.
    let strict = root.clone().try_get_matches_from(&arguments);
    let Ok(matches) = strict.or_else(|_| root.clone().ignore_errors(true).try_get_matches_from(&arguments)) else {
        return Ok(arguments);
    };
    let (mut command, mut leaf) = (root, &matches);
    while let Some((name, inner)) = leaf.subcommand() {
        (command, leaf) = (command.find_subcommand(name).unwrap_or(command), inner);
    }
    let Some(path) = leaf.try_get_one::<PathBuf>("config").ok().flatten() else { return Ok(arguments) };
    for (key, values) in read_file(path, root)? {
        let known_here = command.get_arguments().find(|argument| argument.get_id() == key.as_str());
        let given = leaf.try_contains_id(&key).is_ok()
            && matches!(leaf.value_source(&key), Some(ValueSource::CommandLine | ValueSource::EnvVariable));
        let Some(argument) = known_here.filter(|_| !given) else { continue };
        let flag = format!("--{}", key.replace('_', "-"));
        for value in values {
            match (argument.get_action().takes_values(), value.as_str()) {
                (true, _) => arguments.push(format!("{flag}={value}").into()),
                (false, "true") => arguments.push(flag.clone().into()),
                (false, "false") => {}
                (false, _) => return Err(format!("{}: {key} must be true or false", path.display())),
            }
        }
    }
    Ok(arguments)
}

fn read_file(path: &Path, root: &Command) -> Result<Vec<(String, Vec<String>)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table: toml::Table = text.parse().map_err(|error| explain_toml(path, &text, &error))?;
    // A settings file cannot name another settings file.
    let known: Vec<String> = setting_names(root).into_iter().filter(|name| name != "config").collect();
    let mut settings = Vec::new();
    for (name, value) in table {
        let key = name.replace('-', "_");
        if !known.contains(&key) {
            return Err(format!("{}: unknown setting {name:?}{}", path.display(), suggest_name(&key, &known, "")));
        }
        let values = match value {
            toml::Value::Array(items) => items.iter().map(toml_text).collect(),
            other => toml_text(&other).map(|text| vec![text]),
        };
        let wrong = || format!("{}: {name} must be a text, a number, true or false, or a list of them", path.display());
        settings.push((key, values.ok_or_else(wrong)?));
    }
    Ok(settings)
}

/// The line number and the reason, without the line itself, which may contain a password.
fn explain_toml(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = 1 + before.matches('\n').count();
    format!("{}, line {line}: {}", path.display(), error.message())
}

fn toml_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// Refuses unknown variables with our prefix: a misspelt setting would otherwise be ignored silently.
fn check_environment(root: &Command) -> Result<(), String> {
    let known_names: Vec<String> = setting_names(root).iter().map(|name| name.to_uppercase()).collect();
    for (name, _) in std::env::vars_os() {
        let Some(bare) = name.to_str().and_then(|name| name.strip_prefix(VARIABLE_PREFIX)) else { continue };
        let ours = name == store::SECRETS_VARIABLE || bare.starts_with("TEST_");
        if !ours && !known_names.iter().any(|name| name == bare) {
            return Err(format!(
                "unknown environment variable {VARIABLE_PREFIX}{bare}{}",
                suggest_name(bare, &known_names, VARIABLE_PREFIX)
            ));
        }
    }
    Ok(())
}

/// The names of all settings, which are the arguments of `serve` that have an environment variable.
fn setting_names(root: &Command) -> Vec<String> {
    let serve = root.find_subcommand("serve");
    let arguments = serve.into_iter().flat_map(Command::get_arguments).filter(|argument| argument.get_env().is_some());
    arguments.map(|argument| argument.get_id().to_string()).collect()
}

/// The similarity from which a name counts as a misspelling of another.
const SIMILAR_MIN: f64 = 0.8;

/// Suggests a known name. `prefix` is shown before each but not compared: with it, any two names would look alike.
fn suggest_name(name: &str, known: &[String], prefix: &str) -> String {
    let scored = known.iter().map(|known| (strsim::jaro_winkler(name, known), known));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(score, _)| *score >= SIMILAR_MIN);
    let all = || known.iter().map(|known| format!("{prefix}{known}")).collect::<Vec<_>>().join(", ");
    best.map_or_else(|| format!("; known are: {}", all()), |(_, known)| format!("; did you mean {prefix}{known}?"))
}
