//! The shape of libvirt's URIs: `driver[+transport]://[user@][host][:port]/path[?options]`.

/// Longer than any URI of a host.
const URI_BYTES_MAX: usize = 1_000;

/// Says what is wrong with a URI. Whether its driver exists is up to the library.
pub fn check_uri(uri: &str) -> Result<(), &'static str> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return Err("is no URI of libvirt");
    };
    if uri.len() > URI_BYTES_MAX || !uri.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("is too long, or has spaces or letters that a URI cannot have");
    }
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let (driver, transport) = match scheme.split_once('+') {
        Some((driver, transport)) => (driver, Some(transport)),
        None => (scheme, None),
    };
    if !is_word(driver) || transport.is_some_and(|transport| !is_word(transport)) {
        return Err("has no driver such as qemu, or qemu+ssh");
    }
    if matches!(driver, "http" | "https") {
        return Err("is an address of the web, not of libvirt");
    }
    let Some((authority, _)) = rest.split_once('/') else {
        return Err("has no path, such as /system");
    };
    match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => Err("must have no password"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_libvirt_are_known_by_their_shape() {
        for uri in [
            "test:///default",
            "qemu:///system",
            "qemu+ssh://root@kvm1.example.com:2222/system?keyfile=/etc/key",
            "qemu+tls://kvm1/system",
            "test+unix:///default?socket=/run/libvirt/libvirt-sock",
            "xen:///",
        ] {
            assert_eq!(check_uri(uri), Ok(()), "{uri}");
        }
        for (uri, problem) in [
            ("", "no URI"),
            ("/system", "no URI"),
            ("qemu", "no URI"),
            ("://system", "no driver"),
            ("Qemu:///system", "no driver"),
            ("qemu+:///system", "no driver"),
            ("http://127.0.0.1/", "of the web"),
            ("qemu://host", "no path"),
            ("qemu:///sys tem", "spaces"),
            ("qemu+ssh://root:secret@host/system", "no password"),
        ] {
            let found = check_uri(uri).err();
            assert!(found.is_some_and(|found| found.contains(problem)), "{uri}: {found:?}");
        }
    }
}
