//! Signature Version 4, by which AWS knows who sends a request.
//!
//! Written here because the crate aws-sigv4 brings fourteen others that nothing else uses, for what is two hashes of a text.
//! Only what our requests need: header signatures, one path that is signed as it is written, no query.

use kernel::base::{Timestamp, hmac_sha256, sha256};

use crate::message::to_hex;

/// Keys of a user, or of the session of a role.
#[derive(Clone)]
pub struct SigningKeys {
    pub access_key_id: String,
    pub secret_access_key: String,
    pub session_token: Option<String>,
}

/// Where and when a signature holds.
pub struct SigningScope<'a> {
    pub region: &'a str,
    pub service: &'a str,
    pub now: Timestamp,
}

pub struct UnsignedRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// Lower-case names; `host` and `x-amz-date` among them.
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
}

/// The value of the header `authorization`.
pub fn sign_request(request: &UnsignedRequest<'_>, keys: &SigningKeys, scope: &SigningScope<'_>) -> String {
    let mut headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.trim())).collect();
    headers.sort_unstable();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = headers.iter().flat_map(|(name, value)| [*name, ":", *value, "\n"]).collect();
    let body_hash = to_hex(&sha256(request.body));
    let canonical = format!("{}\n{}\n\n{lines}\n{names}\n{body_hash}", request.method, request.path);

    let date_time = to_date_time(scope.now);
    let date = date_time.split('T').next().unwrap_or_default();
    let (region, service) = (scope.region, scope.service);
    let credential_scope = format!("{date}/{region}/{service}/aws4_request");
    let to_sign =
        format!("AWS4-HMAC-SHA256\n{date_time}\n{credential_scope}\n{}", to_hex(&sha256(canonical.as_bytes())));

    let first_key = format!("AWS4{}", keys.secret_access_key);
    let signing_key = [date, region, service, "aws4_request"]
        .iter()
        .fold(first_key.into_bytes(), |key, part| hmac_sha256(&key, part.as_bytes()).to_vec());
    let signature = to_hex(&hmac_sha256(&signing_key, to_sign.as_bytes()));
    let id = &keys.access_key_id;
    format!("AWS4-HMAC-SHA256 Credential={id}/{credential_scope}, SignedHeaders={names}, Signature={signature}")
}

/// A time as `x-amz-date` has it: `20150830T123600Z`.
pub fn to_date_time(at: Timestamp) -> String {
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    let digits: String = seconds.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    format!("{digits}Z")
}

/// Examples of AWS' published test suite for Signature Version 4.
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const EMPTY_BODY: &[u8] = b"";
    const FORM_HASH: &str = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";

    fn signature(method: &str, headers: &[(&str, &str)], body: &[u8], session_token: Option<&str>) -> String {
        let mut headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let now = Timestamp::parse("2015-08-30T12:36:00Z").unwrap();
        headers.push(("host".to_owned(), "example.amazonaws.com".to_owned()));
        headers.push(("x-amz-date".to_owned(), to_date_time(now)));
        if let Some(token) = session_token {
            headers.push(("x-amz-security-token".to_owned(), token.to_owned()));
        }
        let keys = SigningKeys {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: session_token.map(str::to_owned),
        };
        let scope = SigningScope { region: "us-east-1", service: "service", now };
        let authorization =
            sign_request(&UnsignedRequest { method, path: "/", headers: &headers, body }, &keys, &scope);
        authorization.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn requests_without_a_body() {
        let expected = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        assert_eq!(signature("GET", &[], EMPTY_BODY, None), expected);
        let expected = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        assert_eq!(signature("POST", &[], EMPTY_BODY, None), expected);
    }

    #[test]
    fn a_session_signs_its_token() {
        let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
        let expected = "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8";
        assert_eq!(signature("GET", &[], EMPTY_BODY, Some(token)), expected);
    }

    #[test]
    fn forms() {
        for (content_type, expected) in [
            ("application/x-www-form-urlencoded", "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b"),
            (
                "application/x-www-form-urlencoded; charset=utf-8",
                "328d1b9eaadca9f5818ef05e8392801e091653bafec24fcab71e7344e7f51422",
            ),
        ] {
            let headers =
                [("content-type", content_type), ("content-length", "13"), ("x-amz-content-sha256", FORM_HASH)];
            assert_eq!(signature("POST", &headers, b"Param1=value1", None), expected);
        }
    }

    #[test]
    fn the_header_names_key_scope_and_headers() {
        let headers = [("host".to_owned(), "h".to_owned()), ("content-type".to_owned(), "t".to_owned())];
        let keys =
            SigningKeys { access_key_id: "AK".to_owned(), secret_access_key: "S".to_owned(), session_token: None };
        let scope = SigningScope { region: "eu-west-1", service: "ec2", now: Timestamp::from_millis(0) };
        let request = UnsignedRequest { method: "POST", path: "/", headers: &headers, body: b"" };
        let authorization = sign_request(&request, &keys, &scope);
        let expected = "AWS4-HMAC-SHA256 Credential=AK/19700101/eu-west-1/ec2/aws4_request, \
                        SignedHeaders=content-type;host, Signature=";
        assert!(authorization.starts_with(expected), "{authorization}");
    }
}
