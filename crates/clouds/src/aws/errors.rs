//! What AWS' error codes mean.

use kernel::base::{HOUR_MS, MINUTE_MS, Timestamp};

use super::CLOUD;
use super::xml::read_document;
use crate::error::RequestEffect;
use crate::rest::find_retry_after_ms;
use crate::{CloudError, CloudErrorKind, CloudResponse};

/// How far the clocks may differ before a refused signature is blamed on that. EC2 accepts about five minutes, and a request
/// may have been under way for a part of one.
const CLOCK_DIFFERENCE_MS_MAX: i64 = 4 * MINUTE_MS;

/// The error that an answer carries. `secrets` are left out of its message; `now` is when the request was signed.
pub fn read_error(response: &CloudResponse, secrets: &[&str], effect: RequestEffect, now: Timestamp) -> CloudError {
    let root = read_document(&response.body, &[], |_| {});
    let error = root.as_ref().ok().and_then(|root| root.find_anywhere("Error"));
    let Some(code) = error.and_then(|error| error.find_text(&["Code"])) else {
        return read_foreign(response, effect, now);
    };
    let message = error.and_then(|error| error.find_text(&["Message"])).unwrap_or_default();
    let code = code.trim_start_matches("Client.").trim_start_matches("Server.");
    let kind = classify(code, message, response.status, effect);
    // EC2 says of an old signature only that it could not validate the credentials.
    let is_refused_by_ec2 = code == "AuthFailure" && kind == CloudErrorKind::Auth;
    if is_clock_error(code, message) || (is_refused_by_ec2 && is_clock_off(response, now)) {
        let detail = "The clocks of this server and of AWS differ by more than AWS accepts, so it refuses every signature. \
                      Set the clock of this server.";
        let mut error = CloudError::new(CloudErrorKind::Unavailable, detail);
        error.code = Some("RequestTimeTooSkewed".to_owned());
        return error;
    }
    let mut error = CloudError::from_cloud(CLOUD, kind, (code, shorten(code, message)), secrets);
    if kind == CloudErrorKind::RateLimited {
        error.retry_after_ms = find_retry_after_ms(response, now, HOUR_MS);
    }
    error
}

/// An answer without an error of AWS, as of a proxy in between.
fn read_foreign(response: &CloudResponse, effect: RequestEffect, now: Timestamp) -> CloudError {
    if response.status != 429 {
        return CloudError::unreadable(CLOUD, response.status, effect);
    }
    let mut error = CloudError::from_cloud(CLOUD, CloudErrorKind::RateLimited, ("", ""), &[]);
    error.retry_after_ms = find_retry_after_ms(response, now, HOUR_MS);
    error
}

fn is_clock_error(code: &str, message: &str) -> bool {
    matches!(code, "RequestTimeTooSkewed" | "RequestExpired")
        || message.starts_with("Signature expired")
        || message.starts_with("Signature not yet current")
}

/// Whether the time of an answer is far from that of its request. An answer without a time says nothing.
fn is_clock_off(response: &CloudResponse, now: Timestamp) -> bool {
    let answered_at = response.find_header("date").and_then(parse_http_date);
    answered_at.is_some_and(|at| (at.as_millis() - now.as_millis()).abs() > CLOCK_DIFFERENCE_MS_MAX)
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, the form in which HTTP's servers write times.
fn parse_http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = text.trim().strip_suffix(" GMT")?.split_once(", ")?.1.split(' ');
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let month = 1 + MONTHS.iter().position(|name| *name == month)?;
    Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z"))
}

/// The part of a message that is for people. A refused signature is answered with the request that was signed, and a denied
/// request with an encoded text that only the account's administrators can read.
fn shorten<'a>(code: &str, message: &'a str) -> &'a str {
    match code {
        "SignatureDoesNotMatch" | "IncompleteSignature" | "InvalidSignatureException" => {
            "the signature does not match. Check the secret access key."
        }
        _ => message.split("Encoded authorization failure message").next().unwrap_or_default(),
    }
}

fn classify(code: &str, message: &str, status: u16, effect: RequestEffect) -> CloudErrorKind {
    match code {
        "AuthFailure" if message.contains("Not authorized for images") => CloudErrorKind::Invalid,
        "AuthFailure"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "MissingAuthenticationToken"
        | "IncompleteSignature"
        | "InvalidAccessKeyId"
        | "InvalidSignatureException" => CloudErrorKind::Auth,
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AccessDeniedException"
        | "OptInRequired"
        | "Blocked"
        | "PendingVerification"
        | "RegionDisabledException" => CloudErrorKind::Permission,
        "Throttling"
        | "ThrottlingException"
        | "RequestThrottled"
        | "RequestLimitExceeded"
        | "EC2ThrottledException"
        | "BandwidthLimitExceeded"
        | "TooManyRequestsException" => CloudErrorKind::RateLimited,
        "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => CloudErrorKind::Conflict,
        "InvalidInstanceID.NotFound" => CloudErrorKind::NotFound,
        "TagLimitExceeded" | "VPCIdNotSpecified" | "DefaultVpcDoesNotExist" | "ValidationError" => {
            CloudErrorKind::Invalid
        }
        "InternalError" | "InternalFailure" | "ServiceUnavailable" | "Unavailable" => effect.kind_when_lost(),
        _ => classify_by_shape(code, status, effect),
    }
}

fn classify_by_shape(code: &str, status: u16, effect: RequestEffect) -> CloudErrorKind {
    let starts = |words: &[&str]| words.iter().any(|word| code.starts_with(word));
    if starts(&["Insufficient"]) || code == "ReservationCapacityExceeded" {
        CloudErrorKind::Capacity
    } else if code.ends_with("LimitExceeded") || code.ends_with("CountExceeded") {
        CloudErrorKind::Quota
    } else if status >= 500 {
        effect.kind_when_lost()
    } else if starts(&["Invalid", "Malformed", "Missing", "Unsupported", "Unknown"]) {
        CloudErrorKind::Invalid
    } else {
        match status {
            401 | 403 => CloudErrorKind::Permission,
            408 => effect.kind_when_lost(),
            429 => CloudErrorKind::RateLimited,
            _ => CloudErrorKind::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_answers_are_read() {
        let read = |text: &str| parse_http_date(text).map(|at| at.to_string());
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT").as_deref(), Some("1994-11-06T08:49:37.000Z"));
        for text in ["", "1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37", "Sun, 99 Nov 1994 08:49:37 GMT", ", GMT"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn codes_have_their_kinds() {
        use CloudErrorKind as Kind;
        for (code, status, kind) in [
            ("RequestLimitExceeded", 503, Kind::RateLimited),
            ("Throttling", 400, Kind::RateLimited),
            ("InstanceLimitExceeded", 400, Kind::Quota),
            ("VcpuLimitExceeded", 400, Kind::Quota),
            ("MaxSpotInstanceCountExceeded", 400, Kind::Quota),
            ("InsufficientInstanceCapacity", 500, Kind::Capacity),
            ("InsufficientFreeAddressesInSubnet", 400, Kind::Capacity),
            ("InvalidAMIID.NotFound", 400, Kind::Invalid),
            ("InvalidParameterValue", 400, Kind::Invalid),
            ("InvalidInstanceID.NotFound", 400, Kind::NotFound),
            ("IdempotentParameterMismatch", 400, Kind::Conflict),
            ("UnauthorizedOperation", 403, Kind::Permission),
            ("AccessDenied", 403, Kind::Permission),
            ("SomethingNew", 403, Kind::Permission),
            ("InternalError", 500, Kind::Unavailable),
            ("SomethingNew", 502, Kind::Unavailable),
            ("SomethingNew", 400, Kind::Invalid),
        ] {
            assert_eq!(classify(code, "", status, RequestEffect::Read), kind, "{code}");
        }
        for (code, status) in
            [("InternalError", 500), ("Unavailable", 503), ("SomethingNew", 500), ("RequestTimeout", 408)]
        {
            assert_eq!(classify(code, "", status, RequestEffect::Create), Kind::Ambiguous, "{code}");
        }
        assert_eq!(classify("InsufficientInstanceCapacity", "", 500, RequestEffect::Create), Kind::Capacity);
    }
}
