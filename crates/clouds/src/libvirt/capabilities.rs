//! What a host can run.

use super::xml::{HostElement, read_element};

/// How full virtual machines are described to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestKind {
    /// The hypervisor: `kvm`, `qemu`, `xen` or `test`.
    pub domain_type: String,
    pub arch: String,
}

/// Reads a host's capabilities: its own architecture before others, and KVM before what is emulated. `None` if it runs no
/// full virtual machines, as a host of containers.
pub fn read_guest_kind(capabilities: &str) -> Option<GuestKind> {
    let root = read_element(capabilities)?;
    let host_arch = root.find(&["host", "cpu", "arch"]).map(|arch| arch.text.trim().to_owned());
    let is_full = |guest: &&HostElement| guest.find(&["os_type"]).is_some_and(|kind| kind.text.trim() == "hvm");
    let arches: Vec<&HostElement> =
        root.list("guest").filter(is_full).filter_map(|guest| guest.find(&["arch"])).collect();
    let arch = arches.iter().find(|arch| arch.attribute("name") == host_arch.as_deref()).or_else(|| arches.first())?;
    let types: Vec<&str> = arch.list("domain").filter_map(|domain| domain.attribute("type")).collect();
    let domain_type = types.iter().find(|kind| **kind == "kvm").or_else(|| types.first())?;
    Some(GuestKind { domain_type: (*domain_type).to_owned(), arch: arch.attribute("name")?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_of_the_hosts_own_architecture_is_preferred() {
        let guest = |arch: &str, types: &[&str]| {
            let domains: Vec<String> = types.iter().map(|kind| format!("<domain type='{kind}'/>")).collect();
            let domains = domains.concat();
            format!("<guest><os_type>hvm</os_type><arch name='{arch}'>{domains}</arch></guest>")
        };
        let capabilities =
            |guests: &str| format!("<capabilities><host><cpu><arch>x86_64</arch></cpu></host>{guests}</capabilities>");
        let find = |guests: &str| read_guest_kind(&capabilities(guests)).map(|kind| (kind.domain_type, kind.arch));
        let pair = |kind: &str, arch: &str| Some((kind.to_owned(), arch.to_owned()));
        let both = guest("aarch64", &["qemu"]) + &guest("x86_64", &["qemu", "kvm"]);
        assert_eq!(find(&both), pair("kvm", "x86_64"));
        assert_eq!(find(&guest("i686", &["test"])), pair("test", "i686"));
        assert_eq!(find("<guest><os_type>exe</os_type><arch name='x86_64'><domain type='lxc'/></arch></guest>"), None);
        assert_eq!(find(""), None);
        assert_eq!(read_guest_kind("nothing"), None);
    }
}
