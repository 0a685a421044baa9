//! Rules as plain functions: domains, redirect targets, roles from claims, and the checks of a provider's settings.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use kernel::auth::Role;
use kernel::base::{Error, Label, Result};
use kernel::outbound::Target;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

use super::{DOMAINS_MAX, NewProvider, ProviderChange, ROLE_RULES_MAX, RoleRule};
use crate::domain_name::is_domain_name;

/// The redirect target if none is given.
pub const DEFAULT_REDIRECT: &str = "/overview";
/// The longest path of this server.
const REDIRECT_BYTES_MAX: usize = 2_048;
/// Longer than any that providers issue.
const CLIENT_ID_BYTES_MAX: usize = 500;
const CLIENT_SECRET_BYTES_MAX: usize = 4_096;
const CLAIM_CHARS_MAX: usize = 200;

/// Unreserved characters are not encoded, in queries, forms and the credentials of RFC 6749.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes a value of a query or form.
pub fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Decodes a query into names and values. `None` if one of them is not UTF-8 or has U+0000.
pub fn decode_query(query: &str) -> Option<Vec<(String, String)>> {
    let decode = |text: &str| {
        let text = percent_decode_str(&text.replace('+', " ")).decode_utf8().ok()?.into_owned();
        (!text.contains('\0')).then_some(text)
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name)?, decode(value)?))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

/// Parses a DNS name with at least one dot into lower case.
pub fn parse_domain(text: &str) -> Result<String, String> {
    let domain = text.to_ascii_lowercase();
    let wrong = "must be a domain such as acme.example, without an address before it";
    if is_domain_name(&domain) { Ok(domain) } else { Err(wrong.to_owned()) }
}

/// Parses a path on this server. Browsers read `\` as `/`, ignore tabs and line breaks, and treat two leading slashes as
/// another server; proxies may decode encoded characters. A path with any of these is refused, not repaired, and so are the
/// sign-in and sign-out pages.
pub fn parse_redirect(text: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "must be a path on this server that starts with a single /, such as {DEFAULT_REDIRECT}, \
             of at most {REDIRECT_BYTES_MAX} characters, and not the sign-in or sign-out page"
        )
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?#%[]".contains(&byte);
    let rest = text.strip_prefix('/').ok_or_else(wrong)?;
    let start = rest.get(..3).unwrap_or_default().to_ascii_lowercase();
    let is_path = text.len() <= REDIRECT_BYTES_MAX
        && text.bytes().all(is_plain)
        && !rest.starts_with('/')
        && !["%2f", "%5c"].contains(&start.as_str())
        && !names_sign_in(text);
    if is_path { Ok(text.to_owned()) } else { Err(wrong()) }
}

/// The path segments of the sign-in and sign-out pages.
const SIGN_IN_PARTS: [&str; 2] = ["signin", "signout"];
/// How many levels of percent-encoding are decoded: more than any proxy does.
const DECODINGS_MAX: usize = 8;

/// Whether any segment of a path is the sign-in or sign-out page, in any encoding or case. Every segment is checked, because
/// proxies resolve dots and doubled slashes differently.
fn names_sign_in(text: &str) -> bool {
    let mut path = text.split(['?', '#']).next().unwrap_or_default().to_owned();
    for _ in 0..DECODINGS_MAX {
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == path {
            let ends_part = |c: char| "/\\;?#".contains(c) || c.is_control() || c.is_whitespace();
            return path.split(ends_part).any(|part| SIGN_IN_PARTS.iter().any(|page| part.eq_ignore_ascii_case(page)));
        }
        path = decoded;
    }
    true
}

/// Parses `CLAIM=VALUE:ROLE`. The value may contain `=` and `:`.
pub fn parse_role_rule(text: &str) -> Result<RoleRule, String> {
    let wrong = || format!("must be CLAIM=VALUE:ROLE with the role {}", Role::ALL.map(Role::as_str).join(", "));
    let (claim, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (value, role) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let role = Role::parse(role).ok_or_else(wrong)?;
    let is_text = |text: &str| (1..=CLAIM_CHARS_MAX).contains(&text.chars().count());
    if !is_text(claim) || !is_text(value) {
        return Err(wrong());
    }
    Ok(RoleRule { claim: claim.to_owned(), value: value.to_owned(), role })
}

/// The highest role that any rule gives, or else the default. It does not depend on the user's previous role.
pub fn role_from_claims(rules: &[RoleRule], default: Option<Role>, claims: &Map<String, Value>) -> Option<Role> {
    let fits =
        |rule: &&RoleRule| find_claim(claims, &rule.claim).is_some_and(|claim| claim_matches(claim, &rule.value));
    let roles: Vec<Role> = rules.iter().filter(fits).map(|rule| rule.role).collect();
    // `Role::ALL` is ordered from the highest to the lowest.
    Role::ALL.into_iter().find(|role| roles.contains(role)).or(default)
}

/// Finds a claim by its name, or by a dotted path such as `realm_access.roles`. A name with dots in it comes first.
pub fn find_claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(claim) = claims.get(name) {
        return Some(claim);
    }
    let (first, rest) = name.split_once('.')?;
    rest.split('.').try_fold(claims.get(first)?, |claim, part| claim.as_object()?.get(part))
}

/// The scope of every sign-on.
const SCOPE: &str = "openid email profile";

/// The scope of a sign-on: the default, and the supported scopes named like the claims of role rules. A scope set by the
/// operator replaces it, because a provider may list scopes that it does not grant to every client.
pub fn requested_scope(operator_scope: Option<&str>, rules: &[RoleRule], supported: &[String]) -> String {
    if let Some(operator_scope) = operator_scope {
        return operator_scope.to_owned();
    }
    let mut scope = SCOPE.to_owned();
    for rule in rules {
        let claim = rule.claim.split('.').next().unwrap_or_default();
        let is_requested = scope.split(' ').any(|requested| requested == claim);
        if !is_requested && !claim.contains(' ') && supported.iter().any(|supported_scope| supported_scope == claim) {
            scope.extend([" ", claim]);
        }
    }
    scope
}

const SCOPE_BYTES_MAX: usize = 500;

/// Parses the operator's scope, each word once. The error says what is wrong with it.
pub fn parse_scope(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_ascii_whitespace() {
        if !word.bytes().all(is_plain) {
            return Err(format!("{word:?} is not a scope"));
        }
        if !words.contains(&word) {
            words.push(word);
        }
    }
    if !words.contains(&"openid") {
        return Err("must have openid among its words, without which nobody is signed in".to_owned());
    }
    let scope = words.join(" ");
    if scope.len() > SCOPE_BYTES_MAX {
        return Err(format!("must be at most {SCOPE_BYTES_MAX} characters"));
    }
    Ok(scope)
}

fn check_scope(scope: &str) -> Result<String> {
    parse_scope(scope).map_err(|detail| Error::invalid("/scope", "invalid_value", detail))
}

/// Whether a claim equals the value, or is a list that contains it.
fn claim_matches(claim: &Value, value: &str) -> bool {
    match claim {
        Value::Array(items) => items.iter().any(|item| equals_text(item, value)),
        claim => equals_text(claim, value),
    }
}

fn equals_text(claim: &Value, value: &str) -> bool {
    match claim {
        Value::String(text) => text == value,
        Value::Bool(_) | Value::Number(_) => {
            let text = claim.to_string();
            text == value
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Whether requests to a provider may go there: by https, or without TLS to an IP address that the operator has allowed. A
/// host name is not enough, because it could resolve to any address, and the client secret is sent there.
pub fn is_allowed_target(target: &Target, allowed: &[IpNet]) -> bool {
    let is_allowed = |address: IpAddr| allowed.iter().any(|network| network.contains(&address));
    target.is_https() || host_address(target).is_some_and(is_allowed)
}

/// The IP address of a host that is an address literal or `localhost`.
fn host_address(target: &Target) -> Option<IpAddr> {
    if target.host() == "localhost" { Some(Ipv4Addr::LOCALHOST.into()) } else { target.host().parse().ok() }
}

/// Whether the host is an IP address or `localhost`: only such targets can be allowed without TLS.
pub fn is_address_target(target: &Target) -> bool {
    host_address(target).is_some()
}

fn is_visible(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

fn check_secret(secret: &str) -> Result<()> {
    if is_visible(secret, CLIENT_SECRET_BYTES_MAX) {
        return Ok(());
    }
    let detail = format!("must hold 1 to {CLIENT_SECRET_BYTES_MAX} visible ASCII characters");
    Err(Error::invalid("/client_secret_file", "invalid_value", detail))
}

/// Checks a new provider. Trims names and puts domains into lower case.
pub fn check_provider(mut new: NewProvider) -> Result<NewProvider> {
    new.name = check_name(&new.name)?;
    check_issuer(&new.issuer).map_err(|detail| Error::invalid("/issuer", "invalid_url", detail))?;
    check_client_id(&new.client_id)?;
    check_secret(&new.client_secret)?;
    new.scope = new.scope.as_deref().map(check_scope).transpose()?;
    new.domains = check_domains(&new.domains)?;
    if new.domains.is_empty() {
        return Err(Error::invalid("/domain", "too_few", "must be given at least once"));
    }
    check_role_map(&new.role_map)?;
    Ok(new)
}

/// Checks the changes to a provider in the same way.
pub fn check_change(mut change: ProviderChange) -> Result<ProviderChange> {
    change.name = change.name.as_deref().map(check_name).transpose()?;
    change.client_id.as_deref().map(check_client_id).transpose()?;
    change.client_secret.as_ref().map(|(secret, _)| check_secret(secret)).transpose()?;
    if let Some(Some(scope)) = &mut change.scope {
        *scope = check_scope(scope)?;
    }
    change.domains = check_domains(&change.domains)?;
    change.role_map.as_deref().map(check_role_map).transpose()?;
    Ok(change)
}

fn check_name(name: &str) -> Result<String> {
    let name = Label::parse(name).map_err(|detail| Error::invalid("/name", "invalid_name", detail))?;
    Ok(name.into_string())
}

fn check_client_id(client_id: &str) -> Result<()> {
    if is_visible(client_id, CLIENT_ID_BYTES_MAX) {
        return Ok(());
    }
    let detail = format!("must be 1 to {CLIENT_ID_BYTES_MAX} visible ASCII characters");
    Err(Error::invalid("/client_id", "invalid_value", detail))
}

/// Puts domains into lower case and removes duplicates.
fn check_domains(domains: &[String]) -> Result<Vec<String>> {
    let domains: Result<Vec<String>, String> = domains.iter().map(|domain| parse_domain(domain)).collect();
    let mut domains = domains.map_err(|detail| Error::invalid("/domain", "invalid_domain", detail))?;
    domains.sort();
    domains.dedup();
    check_domain_count(domains.len())?;
    Ok(domains)
}

pub fn check_domain_count(count: usize) -> Result<()> {
    if count <= DOMAINS_MAX {
        return Ok(());
    }
    Err(Error::invalid("/domain", "too_many", format!("a provider has at most {DOMAINS_MAX} of them")))
}

fn check_role_map(rules: &[RoleRule]) -> Result<()> {
    if rules.len() <= ROLE_RULES_MAX {
        return Ok(());
    }
    Err(Error::invalid("/role_map", "too_many", format!("must be given at most {ROLE_RULES_MAX} times")))
}

/// The issuer is compared exactly with the provider's own, so it is stored as given.
fn check_issuer(issuer: &str) -> Result<(), String> {
    Target::parse(issuer).map_err(|bad| bad.to_string())?;
    if issuer.contains('?') {
        return Err("An issuer has no query.".to_owned());
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_path_on_this_server_is_led_to() {
        for path in ["/", "/overview", "/a/../b", "/a//b", "/a?next=//x#top", "/a%2fb", "/.//x", "/@x", "/a:b"] {
            assert_eq!(parse_redirect(path).as_deref(), Ok(path));
        }
        let long = format!("/{}", "a".repeat(REDIRECT_BYTES_MAX));
        for path in [
            "",
            "overview",
            "//x",
            "///x",
            "/\\x",
            "\\\\x",
            "/a\\b",
            "\\/x",
            "/\t/x",
            "/\n/x",
            "/\r\nx",
            " /x",
            "/ /x",
            "/%2fx",
            "/%2Fx",
            "/%5cx",
            "/%5Cx",
            "https://x",
            "https:/x",
            "javascript:x",
            "/\u{0}",
            "/\u{7f}",
            "/é",
            "/\u{2028}",
            "\u{ff0f}/x",
            "/<x>",
            long.as_str(),
        ] {
            assert!(parse_redirect(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_scope_is_words_with_openid_among_them() {
        let long = format!("openid {}", "a".repeat(SCOPE_BYTES_MAX));
        assert_eq!(parse_scope(" openid  email openid https://x/y.z ").as_deref(), Ok("openid email https://x/y.z"));
        for wrong in
            ["", " ", "email", "OpenID", "openid \"x\"", "openid a\\b", "openid \u{e9}", "openid \u{7f}", &long]
        {
            assert!(parse_scope(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_domain_is_a_name_with_a_dot() {
        for (text, domain) in
            [("acme.test", "acme.test"), ("ACME.Test", "acme.test"), ("a-1.b.xn--p1ai", "a-1.b.xn--p1ai")]
        {
            assert_eq!(parse_domain(text).as_deref(), Ok(domain));
        }
        let long = format!("{}.test", "a".repeat(64));
        for text in [
            "",
            "acme",
            "acme.",
            ".acme.test",
            "acme..test",
            "me@acme.test",
            "acme.test.",
            "-a.test",
            "a-.test",
            "ä.test",
            "192.0.2.1",
            "a_b.test",
            "acme.test/x",
            " acme.test",
            "*.acme.test",
            long.as_str(),
        ] {
            assert!(parse_domain(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_rule_is_read_around_its_value() {
        let rule = parse_role_rule("memberOf=cn=it:staff:technician").unwrap();
        assert_eq!(
            (rule.claim.as_str(), rule.value.as_str(), rule.role),
            ("memberOf", "cn=it:staff", Role::Technician)
        );
        for text in ["", "groups", "groups=admins", "groups=admins:root", "=admins:admin", "groups=:admin"] {
            assert!(parse_role_rule(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_highest_role_that_fits_is_given() {
        let rules = ["groups=staff:technician", "realm_access.roles=root:admin", "a.b=1:admin", "level=3:technician"]
            .map(|text| parse_role_rule(text).unwrap());
        let role = |claims: Value| role_from_claims(&rules, Some(Role::Viewer), claims.as_object().unwrap()).unwrap();
        assert_eq!(role(json!({})), Role::Viewer);
        assert_eq!(role(json!({"groups": ["x", "staff"]})), Role::Technician);
        assert_eq!(role(json!({"groups": "staff"})), Role::Technician);
        assert_eq!(role(json!({"groups": "staffs"})), Role::Viewer);
        assert_eq!(role(json!({"groups": {"staff": true}})), Role::Viewer);
        assert_eq!(role(json!({"groups": ["staff"], "realm_access": {"roles": ["root"]}})), Role::Admin);
        assert_eq!(role(json!({"a.b": "1"})), Role::Admin, "a name with a dot");
        assert_eq!(role(json!({"a.b": "2", "a": {"b": "1"}})), Role::Viewer, "the literal name comes first");
        assert_eq!(role(json!({"level": 3})), Role::Technician);
        assert_eq!(role(json!({"level": [1, 3]})), Role::Technician, "a list that has it");
        assert_eq!(role(json!({"level": [[3], {"3": 3}, null]})), Role::Viewer);
    }

    #[test]
    fn only_an_allowed_address_is_asked_without_tls() {
        let allowed = ["127.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let may = |url: &str| is_allowed_target(&Target::parse(url).unwrap(), &allowed);
        assert!(may("https://idp.acme.test/") && may("http://127.0.0.1:8080/realms/x") && may("http://[fd00::1]/"));
        assert!(may("http://localhost:8080/"), "this machine itself");
        assert!(!may("http://192.0.2.1/") && !may("http://idp.acme.test/") && !may("http://localhost.test/"));
    }

    #[test]
    fn a_query_is_read_as_browsers_write_it() {
        assert_eq!(encode_component("a b&c=ü~-._/"), "a%20b%26c%3D%C3%BC~-._%2F");
        let read = decode_query("code=a%2Bb+c&state=x&iss").unwrap();
        let pairs = [("code", "a+b c"), ("state", "x"), ("iss", "")];
        assert_eq!(read, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(decode_query("code=%ff"), None);
    }
}
