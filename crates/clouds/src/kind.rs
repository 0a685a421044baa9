//! The kinds of clouds that are offered, and where the operator has pointed them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::base::{HOUR_MS, StringEnum, Timestamp};

use crate::aws::AwsAdapter;
use crate::digitalocean::DigitaloceanAdapter;
use crate::hetzner::HetznerAdapter;
use crate::rest::find_retry_after_ms;
use crate::{CloudAdapter, CloudCredentials, CloudResponse, MachineSpec, SpecFieldError, Transport};

kernel::string_enum! {
    /// A kind of cloud. `libvirt` only where the operator offers it.
    #[schema(as = CloudKind)]
    pub enum CloudKind { Aws "aws", Hetzner "hetzner", Digitalocean "digitalocean", Libvirt "libvirt" }
}

impl CloudKind {
    /// Whether this binary can work with clouds of the kind. One that cannot still reads providers that another has stored.
    pub fn is_built_in(self) -> bool {
        self != CloudKind::Libvirt || cfg!(feature = "libvirt")
    }

    /// The regions of a provider that names none: of AWS the oldest one, of the others all that take new machines.
    pub fn default_regions(self) -> &'static [&'static str] {
        match self {
            CloudKind::Aws => &["us-east-1"],
            CloudKind::Hetzner => &["ash", "fsn1", "hel1", "hil", "nbg1", "sin"],
            CloudKind::Digitalocean => {
                &["ams3", "atl1", "blr1", "fra1", "lon1", "nyc1", "nyc3", "ric1", "sfo3", "sgp1", "syd1", "tor1"]
            }
            CloudKind::Libvirt => &[crate::libvirt::REGION],
        }
    }

    /// Whether a machine of this kind of cloud can have this id.
    pub fn is_machine_id(self, id: &str) -> bool {
        match self {
            // Any other length is refused as malformed, also by a look for it.
            CloudKind::Aws => id.strip_prefix("i-").is_some_and(|rest| {
                matches!(rest.len(), 8 | 17) && rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            }),
            CloudKind::Hetzner | CloudKind::Digitalocean => {
                (1..=18).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit())
            }
            CloudKind::Libvirt => crate::libvirt::is_uuid(id),
        }
    }

    /// How long an answer asks the whole account to wait, because there were too many requests; as long as is obeyed.
    pub fn find_retry_after_ms(self, response: &CloudResponse, now: Timestamp) -> Option<i64> {
        let wait_ms_max = if self == CloudKind::Hetzner { crate::hetzner::RETRY_AFTER_MS_MAX } else { HOUR_MS };
        (response.status == 429).then(|| find_retry_after_ms(response, now, wait_ms_max)).flatten()
    }

    /// What clouds of this kind would refuse of a specification, without asking one.
    pub fn check_spec(self, spec: &MachineSpec) -> Vec<SpecFieldError> {
        match self {
            CloudKind::Aws => crate::aws::check_spec(spec),
            CloudKind::Hetzner => crate::hetzner::check_spec(spec),
            CloudKind::Digitalocean => crate::digitalocean::check_spec(spec),
            CloudKind::Libvirt => crate::libvirt::check_spec(spec),
        }
    }
}

/// Base URLs that the operator has set instead of a cloud's own: of AWS instead of `https://ec2.<region>.amazonaws.com` and
/// of every other host, of the others instead of `https://api.hetzner.cloud/v1` and `https://api.digitalocean.com/v2`. Of
/// libvirt the URI of the host, without which the kind is not offered.
#[derive(Clone, Debug, Default)]
pub struct CloudEndpoints(pub BTreeMap<CloudKind, String>);

impl CloudEndpoints {
    /// Parses the operator's options, such as `aws=http://127.0.0.1:5000`. The error says what is right.
    pub fn parse<'a>(options: impl IntoIterator<Item = &'a str>) -> Result<CloudEndpoints, String> {
        let mut endpoints = BTreeMap::new();
        for option in options {
            let (kind, url) = CloudEndpoints::parse_option(option)?;
            if endpoints.insert(kind, url).is_some() {
                return Err(format!("{} is given twice. A kind of cloud has one address.", kind.as_str()));
            }
        }
        Ok(CloudEndpoints(endpoints))
    }

    /// Parses one option into a kind and a URL without a slash at its end, or a URI of libvirt as it is.
    pub fn parse_option(option: &str) -> Result<(CloudKind, String), String> {
        let expected = "expected KIND=URL, such as aws=http://127.0.0.1:5000 or hetzner=http://127.0.0.1:5001/v1";
        let Some((kind, url)) = option.split_once('=') else { return Err(format!("{option:?}: {expected}")) };
        let Some(kind) = CloudKind::parse(kind.trim()) else {
            let names = join_names(CloudKind::is_built_in);
            return Err(format!("{kind:?} is no kind of cloud: {names}; {expected}"));
        };
        if !kind.is_built_in() {
            let name = kind.as_str();
            return Err(format!("{name} is not built into this server; build it with the cargo feature {name}"));
        }
        if kind == CloudKind::Libvirt {
            let (uri, expected) = (url.trim(), "expected a URI such as libvirt=qemu:///system");
            crate::libvirt::check_uri(uri).map_err(|problem| format!("{uri:?} {problem}; {expected}"))?;
            return Ok((kind, uri.to_owned()));
        }
        let url = url.trim().trim_end_matches('/');
        check_base_url(url).map_err(|problem| format!("{url:?} {problem}; {expected}"))?;
        Ok((kind, url.to_owned()))
    }

    /// Whether tenants can have providers of a kind. The operator's own hosts are offered by naming them.
    pub fn offers(&self, kind: CloudKind) -> bool {
        kind.is_built_in() && (kind != CloudKind::Libvirt || self.0.contains_key(&kind))
    }

    /// The kinds that tenants can have, as "a, b or c".
    pub fn offered_names(&self) -> String {
        join_names(|kind| self.offers(kind))
    }

    fn find(&self, kind: CloudKind) -> Option<String> {
        self.0.get(&kind).cloned()
    }
}

fn join_names(is_listed: impl Fn(CloudKind) -> bool) -> String {
    let names = CloudKind::ALL.iter().copied().filter(|kind| is_listed(*kind)).map(|kind| kind.as_str());
    let names: Vec<&str> = names.collect();
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.join(""),
    }
}

/// A path is signed as it is written, so it has only characters that no client writes otherwise.
fn check_base_url(url: &str) -> Result<(), &'static str> {
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else {
        return Err("does not begin with http:// or https://");
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err("must have no user or password");
    }
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    if authority.is_empty() || authority.starts_with(':') || !authority.chars().all(is_host) {
        return Err("has no host that can be used");
    }
    let is_segment = |segment: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~');
        !matches!(segment, "" | "." | "..") && segment.chars().all(is_plain)
    };
    if path.is_empty() || path.split('/').all(is_segment) {
        Ok(())
    } else {
        Err("has a path or query that cannot be used")
    }
}

/// The adapter of the credentials' kind.
pub fn open_adapter(
    credentials: CloudCredentials,
    endpoints: &CloudEndpoints,
    transport: Arc<dyn Transport>,
) -> Box<dyn CloudAdapter> {
    let endpoint = endpoints.find(credentials.kind());
    match credentials {
        CloudCredentials::Aws(credentials) => Box::new(AwsAdapter::new(credentials, endpoint, transport)),
        CloudCredentials::Hetzner(token) => Box::new(HetznerAdapter::new(token, endpoint, transport)),
        CloudCredentials::Digitalocean(token) => Box::new(DigitaloceanAdapter::new(token, endpoint, transport)),
        CloudCredentials::Libvirt { owner } => crate::libvirt::open_host(owner, endpoint),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_kind_and_a_url() {
        let endpoints = CloudEndpoints::parse(["aws=http://127.0.0.1:5000/", "hetzner=https://[::1]:8443/v1"]).unwrap();
        assert_eq!(endpoints.find(CloudKind::Aws).as_deref(), Some("http://127.0.0.1:5000"));
        assert_eq!(endpoints.find(CloudKind::Hetzner).as_deref(), Some("https://[::1]:8443/v1"));
        assert_eq!(endpoints.find(CloudKind::Digitalocean), None);
    }

    #[test]
    fn a_host_of_the_operators_is_offered_only_when_it_is_named() {
        assert_eq!(CloudEndpoints::default().offered_names(), "aws, hetzner or digitalocean");
        assert!(!CloudEndpoints::default().offers(CloudKind::Libvirt));
        let named = CloudEndpoints::parse(["libvirt=test:///default"]);
        assert_eq!(named.is_ok_and(|named| named.offers(CloudKind::Libvirt)), cfg!(feature = "libvirt"));
    }

    #[test]
    fn no_provider_gets_a_region_that_is_closed_to_new_machines() {
        let regions = CloudKind::Digitalocean.default_regions();
        assert!(regions.contains(&"nyc3") && ["ams2", "nyc2", "sfo1", "sfo2"].iter().all(|one| !regions.contains(one)));
    }

    #[test]
    fn an_id_of_a_machine_is_one_that_the_cloud_can_read() {
        let is_id = |id: &str| CloudKind::Aws.is_machine_id(id);
        assert!(is_id("i-1234abcd") && is_id("i-0123456789abcdef0"));
        for mistyped in ["i-0123456789abcdef", "i-0123456789abcdef01", "i-1234ABCD", "i-1234abcg", "1234abcd", "i-"] {
            assert!(!is_id(mistyped), "{mistyped}");
        }
        assert!(CloudKind::Hetzner.is_machine_id("4711") && !CloudKind::Hetzner.is_machine_id("i-1234abcd"));
    }

    #[test]
    fn a_bad_endpoint_says_what_is_right() {
        for (option, problem) in [
            ("aws", "expected KIND=URL"),
            ("azure=http://127.0.0.1", "is no kind of cloud: aws, hetzner"),
            ("aws=127.0.0.1:5000", "does not begin with http"),
            ("aws=http://", "does not begin with http"),
            ("aws=http://user:pass@host", "no user or password"),
            ("aws=http://:80", "no host"),
            ("aws=http://host/a?b=c", "cannot be used"),
            ("aws=http://host/../etc", "cannot be used"),
            ("aws=http://ho st", "no host"),
        ] {
            let error = CloudEndpoints::parse([option]).unwrap_err();
            assert!(error.contains(problem) && error.contains("aws=http://127.0.0.1:5000"), "{option}: {error}");
        }
        let libvirt = CloudEndpoints::parse(["libvirt=http://127.0.0.1"]).unwrap_err();
        assert!(
            libvirt.contains(if cfg!(feature = "libvirt") { "qemu:///system" } else { "not built into" }),
            "{libvirt}"
        );
        let twice = CloudEndpoints::parse(["aws=http://a", "aws=http://b"]).unwrap_err();
        assert!(twice.contains("twice"), "{twice}");
    }
}
