//! The session cookie: not readable by scripts, not sent with other sites' forms, and never over plain HTTP if we have TLS.

/// `Set-Cookie` that signs a browser in. The cookie lasts as long as the browser runs; the session on the server may end
/// earlier.
pub fn set_cookie_header(name: &str, token: &str, secure: bool) -> String {
    format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax{}", secure_suffix(secure))
}

/// `Set-Cookie` that deletes the cookie.
pub fn clear_cookie_header(name: &str, secure: bool) -> String {
    format!("{name}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0{}", secure_suffix(secure))
}

fn secure_suffix(secure: bool) -> &'static str {
    if secure { "; Secure" } else { "" }
}
