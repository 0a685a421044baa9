//! Error codes, as they appear in problem responses, the OpenAPI document and the page `/documentation/errors/`.
//!
//! The kernel's codes are listed here. A feature declares its own, and `feature-kit/src/feature.rs` collects them.

/// A stable, public name for one kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    status: u16,
    name: &'static str,
    title: &'static str,
    help: &'static str,
    example: &'static str,
}

impl Code {
    /// `help` tells the reader of the errors page what to do; `example` is a detail that the API returns with this code.
    pub const fn new(
        status: u16,
        name: &'static str,
        title: &'static str,
        help: &'static str,
        example: &'static str,
    ) -> Self {
        Code { status, name, title, help, example }
    }

    pub fn status(self) -> u16 {
        self.status
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    pub fn title(self) -> &'static str {
        self.title
    }

    pub fn help(self) -> &'static str {
        self.help
    }

    pub fn example(self) -> &'static str {
        self.example
    }
}

macro_rules! codes {
    ($($name:ident $status:literal $word:literal $title:literal $help:literal $example:literal)*) => {
        #[expect(non_upper_case_globals, reason = "they are matched and read like the variants of an enum")]
        impl Code {
            $(pub const $name: Code = Code::new($status, $word, $title, $help, $example);)*

            /// The kernel's codes, ordered by status.
            pub const KERNEL: &[Code] = &[$(Code::$name),*];
        }
    };
}

codes! {
    MalformedJson 400 "malformed_json" "The body is not JSON"
        "The body could not be read as JSON in UTF-8. The detail names the line and column, or the byte."
        "The body is not JSON: expected `,` or `}` at line 3 column 3."
    MissingParameter 400 "missing_parameter" "A query parameter is missing"
        "A required parameter is missing; the detail names it. PUT, PATCH and DELETE name their record with id."
        "Name the record with the query parameter id."
    UnknownParameter 400 "unknown_parameter" "Unknown query parameter"
        "The route does not know this parameter. Nothing is ignored silently, so check the spelling against the OpenAPI document."
        "The query parameter \"stauts\" is not known here."
    InvalidParameter 400 "invalid_parameter" "A query parameter has a bad value"
        "The value is malformed, out of range, or given twice where no list is taken. The detail says what would be right."
        "The query parameter limit must be between 1 and 200."
    InvalidCursor 400 "invalid_cursor" "The cursor is not valid here"
        "A cursor works only for the list, filters and tenant it was made for. Start again without it."
        "The cursor was not made for this list, these filters and this tenant."
    InvalidHeader 400 "invalid_header" "A request header has a bad value"
        "The detail names the header and what would be right."
        "Idempotency-Key must be given once, with 1 to 255 visible characters."
    AmbiguousCredentials 400 "ambiguous_credentials" "More than one credential"
        "Send one of: the session cookie, Authorization: Bearer, or X-API-Key."
        "Send one credential: the session cookie, Authorization or X-API-Key."
    Unauthenticated 401 "unauthenticated" "Not authenticated"
        "No credential was sent, or it is malformed, unknown, revoked or signed out."
        "Send a valid API key (Authorization: Bearer or X-API-Key) or a session cookie."
    KeyExpired 401 "key_expired" "The API key has expired"
        "Make a new key, or give this one a new expires_days with PUT from another credential."
        "The key expired at 2026-11-15T08:00:00.000Z."
    SessionExpired 401 "session_expired" "The session has expired"
        "Sign in again."
        "The session has expired; sign in again."
    InsufficientScope 403 "insufficient_scope" "The credential lacks a scope"
        "required_scope names the missing scope. You cannot grant a scope that you do not hold."
        "This needs the scope api_keys:write."
    CsrfRejected 403 "csrf_rejected" "Refused as a cross-site request"
        "A change by cookie must come from a page of this service, or from a client that is no browser."
        "A change by cookie must come from this service's own pages."
    AddressNotAllowed 403 "address_not_allowed" "The key may not be used from this address"
        "The key has a list of allowed networks (allowed_cidrs), and the caller's address is not in it."
        "The key may not be used from 192.0.2.7."
    NotFound 404 "not_found" "Not found"
        "There is no such route, or no such record in your tenant."
        "There is no such record in this tenant."
    MethodNotAllowed 405 "method_not_allowed" "Method not allowed"
        "The Allow header lists the methods of this route."
        "The Allow header lists the methods of this route."
    RequestTimeout 408 "request_timeout" "The request took too long to arrive"
        "The body did not arrive in time. Send it again."
        "The body did not arrive in time."
    Conflict 409 "conflict" "Conflict with the record's state"
        "The detail says what stands in the way."
        "The key is revoked, which cannot be undone or changed."
    LimitReached 409 "limit_reached" "A limit of the tenant is reached"
        "Remove what is no longer needed. The detail names the limit."
        "A tenant has at most 100 active keys. Revoke one that is no longer needed."
    IdempotencyInProgress 409 "idempotency_in_progress" "The first request with this Idempotency-Key is still running"
        "Wait a moment and send the same request again: it replays the stored answer."
        "The first request with this Idempotency-Key is still running."
    VersionMismatch 412 "version_mismatch" "The record has changed"
        "If-Match names an older version. Read the record again and repeat the change."
        "The record is at version 3: its ETag is \"3\"."
    PayloadTooLarge 413 "payload_too_large" "The body is too large"
        "Bodies are at most 1 MiB."
        "A body is at most 1048576 bytes."
    UnsupportedMediaType 415 "unsupported_media_type" "The body's type is not supported"
        "Send Content-Type: application/json, without a Content-Encoding."
        "Send Content-Type: application/json."
    InvalidFields 422 "invalid_fields" "Some fields are not valid"
        "errors names every bad field at once, with a JSON pointer, a code and what would be right. Nothing was changed."
        "Not valid: /expires_days. See errors for each."
    TargetNotAllowed 422 "target_not_allowed" "The target is inside a network that is not allowed"
        "Private, loopback, link-local, metadata and other reserved addresses are refused, and names that resolve to them. The operator can open a network with --webhook-allow-cidr."
        "Not valid: /url. See errors for each."
    IdempotencyKeyReused 422 "idempotency_key_reused" "The Idempotency-Key was used with another body"
        "Use a new key for a new request; a key is kept for 24 hours."
        "This Idempotency-Key was used with another body."
    RateLimited 429 "rate_limited" "Too many requests"
        "Wait for the seconds in Retry-After. The limits are listed at /api/rate-limits/."
        "The budget of 1200 read requests a minute is used up."
    Internal 500 "internal" "Something went wrong on our side"
        "The request id lets the operator find the cause in the log."
        "The fault is on our side and has been logged under the request id."
    Unavailable 503 "unavailable" "Temporarily unavailable"
        "The service is overloaded or its database is away. Repeat after the seconds in Retry-After, with an Idempotency-Key on POST."
        "The service cannot do this right now. No acknowledged change was lost."
}
