//! The XML of the domain and of the disk that an order makes.

use super::capabilities::GuestKind;
use super::metadata::MachineMetadata;
use super::spec::HostSize;
use super::xml::escape;

/// The pool with the disks of machines.
pub const DISK_POOL: &str = "tenant-control-machines";
/// The network of machines, where the host has it.
pub const NETWORK: &str = "default";

/// What a domain is made of.
pub struct DomainDescription<'a> {
    pub uuid: &'a str,
    pub metadata: &'a MachineMetadata,
    pub size: HostSize,
    pub guest: &'a GuestKind,
    /// The format of its disk, such as `qcow2`; the disk has the name of the domain's UUID.
    pub disk_format: Option<&'a str>,
    pub has_network: bool,
}

impl DomainDescription<'_> {
    pub fn write(&self) -> String {
        let name = self.metadata.name.as_deref().unwrap_or("machine");
        let GuestKind { domain_type, arch } = self.guest;
        let cpu = if domain_type == "kvm" { "<cpu mode='host-model'/>" } else { "" };
        let features = if matches!(arch.as_str(), "x86_64" | "i686") { "<features><acpi/></features>" } else { "" };
        format!(
            "<domain type='{domain_type}'><name>{domain_name}</name><uuid>{uuid}</uuid><title>{title}</title>\
             <metadata>{metadata}</metadata><memory unit='MiB'>{memory}</memory><vcpu>{vcpus}</vcpu>\
             <os><type arch='{arch}'>hvm</type><boot dev='hd'/><boot dev='network'/></os>{features}{cpu}\
             <devices>{disk}{network}<console type='pty'/></devices></domain>",
            domain_type = escape(domain_type),
            domain_name = escape(&name_domain(name, self.uuid)),
            uuid = escape(self.uuid),
            title = escape(name),
            metadata = self.metadata.write(),
            memory = self.size.memory_mib,
            vcpus = self.size.vcpus,
            arch = escape(arch),
            disk = self.disk_format.map(|format| self.describe_disk(format)).unwrap_or_default(),
            network = if self.has_network { describe_network() } else { String::new() },
        )
    }

    fn describe_disk(&self, format: &str) -> String {
        format!(
            "<disk type='volume' device='disk'><driver name='qemu' type='{}'/><source pool='{DISK_POOL}' volume='{}'/>\
             <target dev='vda' bus='virtio'/></disk>",
            escape(format),
            escape(self.uuid)
        )
    }
}

/// Names of domains are unique on a host, and those of machines need not be, not even those of one tenant.
pub fn name_domain(name: &str, uuid: &str) -> String {
    let first: String = uuid.chars().take(8).collect();
    format!("{name}-{first}")
}

fn describe_network() -> String {
    format!("<interface type='network'><source network='{NETWORK}'/><model type='virtio'/></interface>")
}

/// The disk of a machine, which is a copy of an image.
pub fn describe_volume(uuid: &str, format: &str, capacity_bytes: u64) -> String {
    format!(
        "<volume><name>{}</name><capacity unit='bytes'>{capacity_bytes}</capacity><target><format type='{}'/></target></volume>",
        escape(uuid),
        escape(format)
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::xml::read_element;
    use super::*;
    use crate::test_support::spec;

    fn describe(domain_type: &str, disk_format: Option<&str>) -> String {
        let mut order = spec("default", "2cpu-2048mb", "none");
        order.tags.insert("note".to_owned(), "</metadata><devices/>".to_owned());
        let metadata = MachineMetadata::of_order("ten_01", &order);
        let guest = GuestKind { domain_type: domain_type.to_owned(), arch: "x86_64".to_owned() };
        let uuid = "6695eb01-f6a4-8304-89aa-97f2502e193f";
        let size = HostSize { vcpus: 2, memory_mib: 2_048 };
        let has_network = disk_format.is_some();
        DomainDescription { uuid, metadata: &metadata, size, guest: &guest, disk_format, has_network }.write()
    }

    #[test]
    fn a_domain_says_all_of_its_order() {
        let root = read_element(&describe("kvm", Some("qcow2"))).unwrap();
        let text = |path: &[&str]| root.find(path).unwrap().text.clone();
        assert_eq!(root.attribute("type"), Some("kvm"));
        assert_eq!((text(&["name"]), text(&["title"])), ("web-1-6695eb01".to_owned(), "web-1".to_owned()));
        assert_eq!((text(&["vcpu"]), text(&["memory"])), ("2".to_owned(), "2048".to_owned()));
        let source = root.find(&["devices", "disk", "source"]).unwrap();
        assert_eq!(source.attribute("volume"), Some("6695eb01-f6a4-8304-89aa-97f2502e193f"));
        assert_eq!(root.find(&["devices", "interface", "source"]).unwrap().attribute("network"), Some("default"));
        let machine = root.find(&["metadata", "machine"]).unwrap();
        assert_eq!(machine.attribute("operation"), Some("op_0123456789abcdefghjkmnpqrs"));
        assert_eq!(machine.list("tag").last().unwrap().attribute("value"), Some("</metadata><devices/>"));
    }

    #[test]
    fn without_an_image_there_is_no_disk() {
        let root = read_element(&describe("test", None)).unwrap();
        assert_eq!(root.find(&["devices", "disk"]), None);
        assert_eq!(root.find(&["devices", "interface"]), None);
        assert_eq!(root.find(&["cpu"]), None);
    }

    #[test]
    fn a_disk_is_a_volume_of_its_own() {
        let root = read_element(&describe_volume("6695eb01", "qcow2", 1 << 30)).unwrap();
        assert_eq!(root.find(&["capacity"]).unwrap().text, "1073741824");
        assert_eq!(root.find(&["target", "format"]).unwrap().attribute("type"), Some("qcow2"));
    }
}
