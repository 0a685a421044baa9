//! Calls of AWS' Query APIs: a signed form, answered with XML.

use std::sync::Arc;

use kernel::base::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::CLOUD;
use super::errors::read_error;
use super::sign::{SigningKeys, SigningScope, UnsignedRequest, sign_request, to_date_time};
use super::xml::{XmlElement, read_document};
use crate::aws_partition::find_domain;
use crate::error::RequestEffect;
use crate::{CloudError, CloudRequest, CloudResponse, Transport};

/// Signs calls and sends them.
pub struct CallSender {
    /// The operator's, for every service and region.
    endpoint: Option<String>,
    transport: Arc<dyn Transport>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AwsService {
    Ec2,
    Sts,
}

impl AwsService {
    const fn name(self) -> &'static str {
        match self {
            AwsService::Ec2 => "ec2",
            AwsService::Sts => "sts",
        }
    }

    const fn version(self) -> &'static str {
        match self {
            AwsService::Ec2 => "2016-11-15",
            AwsService::Sts => "2011-06-15",
        }
    }
}

/// One call. Its parameters are in the order in which they are sent.
pub struct AwsCall<'a> {
    pub service: AwsService,
    pub region: &'a str,
    pub action: &'static str,
    pub effect: RequestEffect,
    params: Vec<(String, String)>,
}

impl<'a> AwsCall<'a> {
    pub fn new(service: AwsService, region: &'a str, action: &'static str) -> Self {
        AwsCall { service, region, action, effect: RequestEffect::Read, params: Vec::new() }
    }

    pub fn ec2(region: &'a str, action: &'static str) -> Self {
        AwsCall::new(AwsService::Ec2, region, action)
    }

    pub fn creating(mut self) -> Self {
        self.effect = RequestEffect::Create;
        self
    }

    pub fn param(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }

    pub fn optional(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.param(name, value),
            None => self,
        }
    }

    /// A filter that any of the values matches. Filters are numbered in the order of these calls.
    pub fn filter(mut self, name: &str, values: &[&str]) -> Self {
        let number =
            1 + self.params.iter().filter(|(key, _)| key.ends_with(".Name") && key.starts_with("Filter.")).count();
        self.params.push((format!("Filter.{number}.Name"), name.to_owned()));
        for (index, value) in values.iter().enumerate() {
            self.params.push((format!("Filter.{number}.Value.{}", index + 1), (*value).to_owned()));
        }
        self
    }

    /// Spaces are `+`, as AWS' own clients write them: moto checks signatures of forms that it has written anew.
    fn to_form(&self) -> String {
        const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b' ');
        let encode = |text: &str| utf8_percent_encode(text, FORM).to_string().replace(' ', "+");
        let mut form = format!("Action={}&Version={}", self.action, self.service.version());
        for (name, value) in &self.params {
            form.extend(["&", &encode(name), "=", &encode(value)]);
        }
        form
    }
}

impl CallSender {
    pub fn new(endpoint: Option<String>, transport: Arc<dyn Transport>) -> Self {
        CallSender { endpoint, transport }
    }

    /// Sends a call with these keys. An answer that is no success is an error, without the keys and the user's secret.
    pub async fn send_with(
        &self,
        call: &AwsCall<'_>,
        (keys, user_secret): (&SigningKeys, &str),
        now: Timestamp,
    ) -> Result<CloudResponse, CloudError> {
        let request = self.sign_call(call, keys, now)?;
        let sent = self.transport.send(request).await;
        let response = sent.map_err(|failure| CloudError::from_transport(CLOUD, &failure, call.effect))?;
        if response.is_success() {
            return Ok(response);
        }
        let mut secrets = vec![keys.secret_access_key.as_str(), user_secret];
        secrets.extend(keys.session_token.as_deref());
        Err(read_error(&response, &secrets, call.effect, now))
    }

    /// Where calls of a service in a region go. An operator's endpoint has regions of any name.
    pub fn find_url(&self, service: AwsService, region: &str) -> Result<String, CloudError> {
        check_region(region)?;
        match &self.endpoint {
            Some(endpoint) => Ok(endpoint.clone()),
            None => find_host(service, region),
        }
    }

    fn sign_call(&self, call: &AwsCall<'_>, keys: &SigningKeys, now: Timestamp) -> Result<CloudRequest, CloudError> {
        let url = self.find_url(call.service, call.region)?;
        let (host, path) = split_url(&url);
        let body = call.to_form().into_bytes();
        let mut headers = vec![
            ("content-type".to_owned(), "application/x-www-form-urlencoded; charset=utf-8".to_owned()),
            ("x-amz-date".to_owned(), to_date_time(now)),
            ("host".to_owned(), host),
        ];
        if let Some(token) = &keys.session_token {
            headers.push(("x-amz-security-token".to_owned(), token.clone()));
        }
        let scope = SigningScope { region: call.region, service: call.service.name(), now };
        let unsigned = UnsignedRequest { method: "POST", path: &path, headers: &headers, body: &body };
        let authorization = sign_request(&unsigned, keys, &scope);
        headers.retain(|(name, _)| name != "host");
        headers.push(("authorization".to_owned(), authorization));
        let url = if path == "/" { format!("{url}/") } else { url };
        Ok(CloudRequest { method: "POST", url, headers, body })
    }
}

/// Reads a successful answer. Elements at `item_path` go to `take_item`, unless the answer turns out to be none of the call:
/// then what was taken is worth nothing.
pub fn read_answer<'a>(
    response: &'a CloudResponse,
    call: &AwsCall<'_>,
    item_path: &[&str],
    take_item: impl FnMut(XmlElement<'a>),
) -> Result<XmlElement<'a>, CloudError> {
    let unreadable = || CloudError::unreadable(CLOUD, response.status, call.effect);
    let root = read_document(&response.body, item_path, take_item).map_err(|_| unreadable())?;
    if root.name.strip_suffix("Response") == Some(call.action) { Ok(root) } else { Err(unreadable()) }
}

/// Regions become part of a host, so they have nothing but these characters.
pub fn check_region(region: &str) -> Result<(), CloudError> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_region = (1..=32).contains(&region.len())
        && region.bytes().all(is_allowed)
        && !region.starts_with('-')
        && !region.ends_with('-');
    if is_region {
        Ok(())
    } else {
        Err(CloudError::invalid("A region of AWS has 1 to 32 lower-case letters, digits and -, such as eu-central-1."))
    }
}

fn find_host(service: AwsService, region: &str) -> Result<String, CloudError> {
    Ok(format!("https://{}.{region}.{}", service.name(), find_domain(region)?))
}

/// The value of `host` and the path of a URL. HTTP clients leave out the port of the scheme.
fn split_url(url: &str) -> (String, String) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let port = if scheme == "http" { ":80" } else { ":443" };
    (authority.strip_suffix(port).unwrap_or(authority).to_owned(), format!("/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_from_the_region() {
        for (service, region, host) in [
            (AwsService::Ec2, "eu-west-1", Some("https://ec2.eu-west-1.amazonaws.com")),
            (AwsService::Sts, "cn-north-1", Some("https://sts.cn-north-1.amazonaws.com.cn")),
            (AwsService::Sts, "eusc-de-east-1", Some("https://sts.eusc-de-east-1.amazonaws.eu")),
            (AwsService::Ec2, "us-iso-east-1", None),
        ] {
            assert_eq!(find_host(service, region).ok().as_deref(), host);
        }
        for region in ["", "eu-west-1.evil.example", "eu/west", "EU", "-a", "a-", &"a".repeat(33), "a@b", "a#", "a:1"] {
            assert!(check_region(region).is_err(), "{region}");
        }
        assert!(check_region("us-gov-west-1").is_ok());
    }

    #[test]
    fn forms_are_written_as_botocore_writes_them() {
        let call = AwsCall::ec2("eu-west-1", "RunInstances").param("A.1", "a b+c/=&~_.-*é");
        assert_eq!(call.to_form(), "Action=RunInstances&Version=2016-11-15&A.1=a+b%2Bc%2F%3D%26~_.-%2A%C3%A9");
    }

    #[test]
    fn the_port_of_the_scheme_is_not_signed() {
        for (url, host, path) in [
            ("https://a.example", "a.example", "/"),
            ("https://a.example:443", "a.example", "/"),
            ("http://127.0.0.1:80/x", "127.0.0.1", "/x"),
            ("http://[::1]:5000", "[::1]:5000", "/"),
        ] {
            assert_eq!(split_url(url), (host.to_owned(), path.to_owned()));
        }
    }
}
