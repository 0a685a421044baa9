//! The session cookie: not readable by scripts, not sent by other sites' forms, never over plain http where we have TLS.

/// `Set-Cookie` that signs a browser in. It ends with the browser; the server ends it earlier.
pub fn setting(name: &str, token: &str, secure: bool) -> String {
    format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax{}", suffix(secure))
}

/// `Set-Cookie` that makes a browser forget.
pub fn clearing(name: &str, secure: bool) -> String {
    format!("{name}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0{}", suffix(secure))
}

fn suffix(secure: bool) -> &'static str {
    if secure { "; Secure" } else { "" }
}
