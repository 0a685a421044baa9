//! Every error code the service can answer with: the one list behind problems, the OpenAPI document and the page
//! `/documentation/errors/`.

macro_rules! codes {
    ($($variant:ident $status:literal $name:literal $title:literal $help:literal)*) => {
        /// A stable, public name for one kind of refusal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $($variant),* }

        impl Code {
            /// In the order of their status.
            pub const ALL: &[Code] = &[$(Code::$variant),*];

            pub fn status(self) -> u16 {
                match self { $(Code::$variant => $status),* }
            }

            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name),* }
            }

            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title),* }
            }

            /// What the reader of the errors page should do about it.
            pub fn help(self) -> &'static str {
                match self { $(Code::$variant => $help),* }
            }
        }
    };
}

codes! {
    MalformedJson 400 "malformed_json" "The body is not JSON"
        "The body could not be read as JSON in UTF-8. The detail names the line and column."
    MissingParameter 400 "missing_parameter" "A query parameter is missing"
        "PUT, PATCH and DELETE name their record with the query parameter id."
    UnknownParameter 400 "unknown_parameter" "Unknown query parameter"
        "The route does not know this parameter. Nothing is ignored silently, so check the spelling against the OpenAPI document."
    InvalidParameter 400 "invalid_parameter" "A query parameter has a bad value"
        "The value is malformed, out of range or given twice. The detail says what would be right."
    InvalidCursor 400 "invalid_cursor" "The cursor is not valid here"
        "A cursor works only for the list, filters and tenant it was made for. Start again without it."
    QueryTooBroad 400 "query_too_broad" "No index can answer this combination of filters and order"
        "Too many records would have to be looked at one by one. The detail names a filter to add."
    InvalidHeader 400 "invalid_header" "A request header has a bad value"
        "The detail names the header and what would be right."
    AmbiguousCredentials 400 "ambiguous_credentials" "More than one credential"
        "Send one of: the session cookie, Authorization: Bearer, or X-API-Key."
    Unauthenticated 401 "unauthenticated" "Not authenticated"
        "No credential was sent, or it is malformed, unknown, revoked or signed out."
    KeyExpired 401 "key_expired" "The API key has expired"
        "Make a new key, or give this one a new expires_days with PUT from another credential."
    SessionExpired 401 "session_expired" "The session has expired"
        "Sign in again."
    InsufficientScope 403 "insufficient_scope" "The credential lacks a scope"
        "required_scope names what is missing. Nobody can grant what they do not hold."
    CsrfRejected 403 "csrf_rejected" "Refused as a cross-site request"
        "A change by cookie must come from a page of this service, or from a client that is no browser."
    AddressNotAllowed 403 "address_not_allowed" "The key may not be used from this address"
        "The key has a list of allowed networks (allowed_cidrs), and the caller's address is not in it."
    NotFound 404 "not_found" "Not found"
        "There is no such route, or no such record in your tenant."
    MethodNotAllowed 405 "method_not_allowed" "Method not allowed"
        "The Allow header lists the methods of this route."
    RequestTimeout 408 "request_timeout" "The request took too long to arrive"
        "The body did not arrive in time. Send it again."
    Conflict 409 "conflict" "Conflict with the record's state"
        "The detail says what stands in the way."
    LimitReached 409 "limit_reached" "A limit of the tenant is reached"
        "Remove what is no longer needed. The detail names the limit."
    InvalidTransition 409 "invalid_transition" "The record cannot go from its status to that one"
        "The detail names the statuses that can follow. Nothing of the request was applied."
    IdempotencyInProgress 409 "idempotency_in_progress" "The first request with this Idempotency-Key is still running"
        "Wait a moment and send the same request again: it replays the stored answer."
    VersionMismatch 412 "version_mismatch" "The record has changed"
        "If-Match names an older version. Read the record again and repeat the change."
    PayloadTooLarge 413 "payload_too_large" "The body is too large"
        "Bodies are at most 1 MiB."
    UnsupportedMediaType 415 "unsupported_media_type" "The body's type is not supported"
        "Send Content-Type: application/json, without a Content-Encoding."
    InvalidFields 422 "invalid_fields" "Some fields are not valid"
        "errors names every bad field at once, with a JSON pointer, a code and what would be right. Nothing was changed."
    TargetNotAllowed 422 "target_not_allowed" "The target is inside a network that is not allowed"
        "Private, loopback, link-local, metadata and other reserved addresses are refused, and names that resolve to them. The operator can allow networks."
    IdempotencyKeyReused 422 "idempotency_key_reused" "The Idempotency-Key was used with another body"
        "Use a new key for a new request; a key is kept for 24 hours."
    RateLimited 429 "rate_limited" "Too many requests"
        "Wait for the seconds in Retry-After. The limits are listed at /api/rate-limits/."
    Internal 500 "internal" "Something went wrong on our side"
        "The request id lets the operator find the cause in the log."
    Unavailable 503 "unavailable" "Temporarily unavailable"
        "The service is overloaded or its database is away. Repeat after the seconds in Retry-After, with an Idempotency-Key on POST."
}
