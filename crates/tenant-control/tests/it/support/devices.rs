//! Agents that report, and devices as their tenant reads them.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use kernel::auth::open_as_operator;
use kernel::base::Actor;
use serde_json::{Map, Value, json};
use tenant_control::features::devices::{self, DeviceSettings, FullDevice, clock};
use tenant_control::features::ingest_keys;
use tenant_control::features::organizations;

use super::answer::Answer;
use super::call::Call;
use super::people::Tenancy;
use super::server::Server;

pub const INGEST: &str = "/internal/ingest/inventory";
pub const DEVICES: &str = "/api/rmm/reports/asset-inventory";

/// What an agent signs in with.
#[derive(Clone, Debug)]
pub struct IngestKey {
    pub id: String,
    pub secret: String,
}

impl IngestKey {
    /// The value of its header.
    pub fn basic(&self) -> String {
        format!("Basic {}", BASE64.encode(format!("{}:{}", self.id, self.secret)))
    }
}

impl Server {
    /// A key for all devices of a tenant.
    pub async fn ingest_key(&self, tenancy: &Tenancy) -> IngestKey {
        let db = open_as_operator(&self.app.store, &tenancy.tenant);
        let made = ingest_keys::create_ingest_key(&db, None, &self.app.secrets).await.expect("an ingest key");
        IngestKey { id: made.record.id.to_string(), secret: made.secret.reveal() }
    }

    /// A new organization of this name, its id, and a key that is bound to it.
    pub async fn bound_ingest_key(&self, tenancy: &Tenancy, slug: &str) -> (String, IngestKey) {
        let db = open_as_operator(&self.app.store, &tenancy.tenant);
        let organization =
            organizations::create_named_organization(&db, &slug.to_uppercase(), slug).await.expect("an organization");
        let made =
            ingest_keys::create_ingest_key(&db, Some(&organization), &self.app.secrets).await.expect("an ingest key");
        let key = IngestKey { id: made.record.id.to_string(), secret: made.secret.reveal() };
        (organization.id.to_string(), key)
    }

    pub async fn revoke_ingest_key(&self, tenancy: &Tenancy, key: &IngestKey) {
        let db = open_as_operator(&self.app.store, &tenancy.tenant);
        ingest_keys::revoke_ingest_key(&db, key.id.parse().unwrap()).await.expect("the key is revoked");
    }

    /// Changes a device as an operator or a workflow does.
    pub async fn edit_device(
        &self,
        tenancy: &Tenancy,
        id: &str,
        change: impl FnOnce(&mut FullDevice) + Send + 'static,
    ) {
        let db = self.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
        let id = id.parse().unwrap();
        let change = |full: &mut FullDevice| {
            change(full);
            Ok(())
        };
        db.write(async move |tx| devices::edit_device(tx, id, change).await).await.expect("the device is changed");
    }

    pub async fn delete_device(&self, tenancy: &Tenancy, id: &str) {
        let db = self.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
        let id = id.parse().unwrap();
        let delete = db.write(async move |tx| devices::delete_device(tx, id, devices::ChangeOrigin::Deliberate).await);
        delete.await.expect("the device is deleted");
    }

    /// Looks at every device whose time has come, as the job does.
    pub async fn look_at_devices(&self) {
        clock::store::check_due_devices(&self.app, DeviceSettings::default()).await.expect("a look at the devices");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Zlib,
    Gzip,
    Plain,
}

impl Codec {
    pub const ALL: [Codec; 3] = [Codec::Zlib, Codec::Gzip, Codec::Plain];

    pub fn pack(self, plain: &[u8]) -> Vec<u8> {
        match self {
            Codec::Plain => plain.to_vec(),
            Codec::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Codec::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    #[track_caller]
    pub fn unpack(self, packed: &[u8]) -> String {
        let mut plain = String::new();
        match self {
            Codec::Plain => plain.push_str(str::from_utf8(packed).expect("a text")),
            Codec::Zlib => drop(ZlibDecoder::new(packed).read_to_string(&mut plain).expect("a zlib stream")),
            Codec::Gzip => drop(GzDecoder::new(packed).read_to_string(&mut plain).expect("a gzip stream")),
        }
        plain
    }
}

/// A request of an agent.
#[derive(Clone, Debug)]
pub struct Body {
    pub plain: Vec<u8>,
    pub codec: Codec,
    pub user_agent: &'static str,
    /// The header `GLPI-Agent-ID`.
    pub agent_id: Option<String>,
}

pub const FUSION: &str = "FusionInventory-Agent_v2.6-3";
pub const OCS: &str = "OCS-NG_unified_unix_agent_v2.10.0";
pub const GLPI: &str = "GLPI-Agent_v1.12-dev";

impl Body {
    pub fn new(user_agent: &'static str, plain: impl Into<Vec<u8>>) -> Body {
        Body { plain: plain.into(), codec: Codec::Zlib, user_agent, agent_id: None }
    }

    #[must_use]
    pub fn packed(mut self, codec: Codec) -> Body {
        self.codec = codec;
        self
    }

    #[must_use]
    pub fn agent_id(mut self, agent_id: &str) -> Body {
        self.agent_id = Some(agent_id.to_owned());
        self
    }

    /// What the agent calls it. That of OCS calls everything the same.
    pub fn media_type(&self) -> &'static str {
        match self.codec {
            _ if self.user_agent == OCS => "application/x-compress",
            Codec::Zlib => "application/x-compress-zlib",
            Codec::Gzip => "application/x-compress-gzip",
            Codec::Plain if self.plain.starts_with(b"{") => "application/json",
            Codec::Plain => "application/xml",
        }
    }
}

/// A request of an agent, with its key.
pub fn report<'a>(server: &'a Server, key: &IngestKey, body: &Body) -> Call<'a> {
    let call = server.post(INGEST).header("authorization", key.basic()).header("user-agent", body.user_agent);
    let call = call.header("content-type", body.media_type()).body(body.codec.pack(&body.plain));
    body.agent_id.iter().fold(call, |call, id| call.header("glpi-agent-id", id))
}

/// The same, taken; what is answered, unpacked.
pub async fn reported(server: &Server, key: &IngestKey, body: &Body) -> String {
    let answer = report(server, key, body).await;
    let said = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 200, "{}: {said}", body.user_agent);
    body.codec.unpack(&answer.body)
}

/// A machine, as its agent describes it.
#[derive(Clone, Debug)]
pub struct Agent {
    pub device_id: String,
    pub tag: Option<String>,
    pub hostname: String,
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    /// A word for the kind of machine; without one Linux is a server.
    pub chassis: Option<String>,
    pub os_name: String,
    pub os_version: String,
    pub cpu: String,
    pub memory_mib: i64,
    /// Names and sizes in decimal MB.
    pub disks: Vec<(String, i64)>,
    /// Mounts, sizes and what is free, in MiB.
    pub volumes: Vec<(String, i64, i64)>,
    /// Names, hardware addresses and addresses.
    pub nics: Vec<(String, String, String)>,
    /// Names and versions.
    pub software: Vec<(String, String)>,
    pub user: Option<String>,
    /// In UTC.
    pub boot_time: String,
    /// When the agent ran.
    pub log_date: String,
    /// Further sections of XML.
    pub more_xml: String,
}

impl Agent {
    /// A machine like many, with a name, a device id and a hardware address of its own.
    pub fn named(hostname: &str) -> Agent {
        // A sum that differs for names that differ, which is all that is needed.
        let sum = hostname.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let [_, a, b, c] = sum.to_be_bytes();
        let own = |text: &str| Some(text.to_owned());
        Agent {
            device_id: format!("{hostname}-2026-01-10-08-00-00"),
            tag: None,
            hostname: hostname.to_owned(),
            uuid: None,
            serial: None,
            manufacturer: own("Dell Inc."),
            model: own("PowerEdge R640"),
            chassis: None,
            os_name: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            os_version: "12.11".to_owned(),
            cpu: "Intel(R) Xeon(R) Silver 4210".to_owned(),
            memory_mib: 16_384,
            disks: vec![("sda".to_owned(), 480_103)],
            volumes: vec![("/".to_owned(), 100_000, 50_000)],
            nics: vec![("eno1".to_owned(), format!("52:54:00:{a:02x}:{b:02x}:{c:02x}"), "192.0.2.10".to_owned())],
            software: pairs(&[("bash", "5.2.15"), ("openssl", "3.0.16")]),
            user: own("root"),
            boot_time: "2026-01-15 08:00:00".to_owned(),
            log_date: "2026-01-15 10:00:00".to_owned(),
            more_xml: String::new(),
        }
    }

    #[must_use]
    pub fn software(mut self, software: &[(&str, &str)]) -> Agent {
        self.software = pairs(software);
        self
    }

    /// With these hardware addresses, one card each.
    #[must_use]
    pub fn macs(mut self, macs: &[&str]) -> Agent {
        let card = |(n, mac): (usize, &&str)| (format!("eno{n}"), (*mac).to_owned(), format!("192.0.2.{}", n + 10));
        self.nics = macs.iter().enumerate().map(card).collect();
        self
    }

    #[must_use]
    pub fn tag(mut self, tag: &str) -> Agent {
        self.tag = Some(tag.to_owned());
        self
    }

    #[must_use]
    pub fn device_id(mut self, device_id: &str) -> Agent {
        device_id.clone_into(&mut self.device_id);
        self
    }

    #[must_use]
    pub fn uuid(mut self, uuid: &str) -> Agent {
        self.uuid = Some(uuid.to_owned());
        self
    }

    #[must_use]
    pub fn serial(mut self, serial: &str) -> Agent {
        self.serial = Some(serial.to_owned());
        self
    }

    /// A full inventory of the FusionInventory agent.
    pub fn fusion(&self) -> Body {
        let os = [
            ("ARCH", "x86_64"),
            ("BOOT_TIME", &self.boot_time),
            ("FULL_NAME", &self.os_name),
            ("KERNEL_NAME", "linux"),
            ("KERNEL_VERSION", "6.1.0-44-amd64"),
            ("NAME", "Debian GNU/Linux"),
            ("VERSION", &self.os_version),
        ];
        let hardware = [("OSNAME", self.os_name.as_str()), ("OSVERSION", "6.1.0-44-amd64")];
        let cpus = element("CPUS", &[("ARCH", "i386"), ("CORE", "10"), ("NAME", &self.cpu), ("THREAD", "20")]);
        let own = format!("{}{cpus}<VERSIONCLIENT>{FUSION}</VERSIONCLIENT>", element("OPERATINGSYSTEM", &os));
        let software = |(name, version): &(String, String)| {
            element("SOFTWARES", &[("ARCH", "amd64"), ("FROM", "deb"), ("NAME", name), ("VERSION", version)])
        };
        Body::new(FUSION, self.xml(&own, &hardware, software))
    }

    /// A full inventory of the OCS agent, which has no operating system but in the hardware, and no name of its own.
    pub fn ocs(&self) -> Body {
        let hardware = [
            ("OSNAME", "Debian GNU/Linux 12"),
            ("OSCOMMENTS", &self.os_name),
            ("OSVERSION", &self.os_version),
            ("DESCRIPTION", "x86_64/00-00-00 22:44:18"),
            ("PROCESSORT", &self.cpu),
        ];
        let cpu = [("CORES", "10"), ("CPUARCH", "x86_64"), ("NBSOCKET", "1"), ("TYPE", self.cpu.as_str())];
        let software = |(name, version): &(String, String)| {
            let name = format!("{name}:amd64");
            element("SOFTWARES", &[("ARCHITECTURE", "amd64"), ("FROM", "deb"), ("NAME", &name), ("VERSION", version)])
        };
        Body::new(OCS, self.xml(&element("CPUS", &cpu), &hardware, software))
    }

    fn xml(&self, own: &str, hardware: &[(&str, &str)], software: impl Fn(&(String, String)) -> String) -> String {
        let mut text = format!("{own}{}", element("ACCESSLOG", &[("LOGDATE", &self.log_date)]));
        let memory = self.memory_mib.to_string();
        let mut all = vec![("MEMORY", memory.as_str()), ("NAME", &self.hostname)];
        all.extend_from_slice(hardware);
        all.extend(self.uuid.as_deref().map(|uuid| ("UUID", uuid)));
        all.extend(self.user.as_deref().map(|user| ("LASTLOGGEDUSER", user)));
        all.extend(self.chassis.as_deref().map(|chassis| ("CHASSIS_TYPE", chassis)));
        text += &element("HARDWARE", &all);
        let bios = [("SSN", &self.serial), ("SMANUFACTURER", &self.manufacturer), ("SMODEL", &self.model)];
        let bios: Vec<(&str, &str)> =
            bios.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        text += &element("BIOS", &bios);
        if let Some(tag) = &self.tag {
            text += &element("ACCOUNTINFO", &[("KEYNAME", "TAG"), ("KEYVALUE", tag)]);
        }
        for (name, size) in &self.disks {
            text += &element("STORAGES", &[("NAME", name), ("DISKSIZE", &size.to_string()), ("TYPE", "disk")]);
        }
        for (mount, total, free) in &self.volumes {
            let (total, free) = (total.to_string(), free.to_string());
            text += &element("DRIVES", &[("FILESYSTEM", "ext4"), ("FREE", &free), ("TOTAL", &total), ("TYPE", mount)]);
        }
        for (name, mac, ip) in &self.nics {
            text +=
                &element("NETWORKS", &[("DESCRIPTION", name), ("IPADDRESS", ip), ("MACADDR", mac), ("STATUS", "Up")]);
        }
        text.extend(self.software.iter().map(software));
        text += &self.more_xml;
        let id = escape(&self.device_id);
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<REQUEST><CONTENT>{text}</CONTENT>\
             <DEVICEID>{id}</DEVICEID><QUERY>INVENTORY</QUERY></REQUEST>"
        )
    }

    /// A full inventory of the GLPI agent.
    pub fn glpi(&self) -> Body {
        Body::new(GLPI, self.json().to_string())
    }

    /// Only these sections of it, as the GLPI agent sends what has changed.
    pub fn partial(&self, sections: &[&str]) -> Body {
        let mut report = self.json();
        report["partial"] = json!(true);
        let content = report["content"].as_object_mut().unwrap();
        content.retain(|name, _| name == "versionclient" || sections.contains(&name.as_str()));
        Body::new(GLPI, report.to_string())
    }

    /// The body of a full inventory of the GLPI agent, to be changed.
    pub fn json(&self) -> Value {
        let drive = |(mount, total, free): &(String, i64, i64)| json!({"type": mount, "total": total, "free": free, "filesystem": "ext4"});
        let nic = |(name, mac, ip): &(String, String, String)| json!({"description": name, "mac": mac, "ipaddress": ip, "status": "up"});
        let disk = |(name, size): &(String, i64)| json!({"name": name, "disksize": size, "type": "disk"});
        let software = |(name, version): &(String, String)| json!({"name": name, "version": version, "arch": "amd64", "from": "deb"});
        let hardware = known(&[
            ("name", Some(&self.hostname)),
            ("uuid", self.uuid.as_ref()),
            ("lastloggeduser", self.user.as_ref()),
            ("chassis_type", self.chassis.as_ref()),
        ]);
        let mut hardware = Value::Object(hardware);
        hardware["memory"] = json!(self.memory_mib);
        let bios = known(&[
            ("ssn", self.serial.as_ref()),
            ("smanufacturer", self.manufacturer.as_ref()),
            ("smodel", self.model.as_ref()),
        ]);
        let os = json!({
            "name": "Debian GNU/Linux", "full_name": self.os_name, "version": self.os_version, "arch": "x86_64",
            "kernel_name": "linux", "kernel_version": "6.1.0-44-amd64", "boot_time": self.boot_time,
        });
        let mut report = json!({
            "action": "inventory", "deviceid": self.device_id, "itemtype": "Computer",
            "content": {
                "versionclient": GLPI, "accesslog": {"logdate": self.log_date}, "hardware": hardware, "bios": bios,
                "operatingsystem": os, "cpus": [{"name": self.cpu, "core": 10, "thread": 20}],
                "storages": self.disks.iter().map(disk).collect::<Vec<_>>(),
                "drives": self.volumes.iter().map(drive).collect::<Vec<_>>(),
                "networks": self.nics.iter().map(nic).collect::<Vec<_>>(),
                "softwares": self.software.iter().map(software).collect::<Vec<_>>(),
            },
        });
        if let Some(tag) = &self.tag {
            report["tag"] = json!(tag);
        }
        report
    }

    /// The first question of an agent that speaks XML.
    pub fn prolog(&self, user_agent: &'static str) -> Body {
        let id = escape(&self.device_id);
        let text = format!("<?xml version=\"1.0\"?><REQUEST><DEVICEID>{id}</DEVICEID><QUERY>PROLOG</QUERY></REQUEST>");
        Body::new(user_agent, text)
    }

    /// The question of an agent that speaks JSON.
    pub fn contact(&self) -> Body {
        let (id, tasks) = (&self.device_id, ["inventory"]);
        let question = json!({"action": "contact", "deviceid": id, "installed-tasks": tasks, "enabled-tasks": tasks});
        Body::new(GLPI, question.to_string())
    }
}

fn known(fields: &[(&str, Option<&String>)]) -> Map<String, Value> {
    fields.iter().filter_map(|(name, value)| Some(((*name).to_owned(), json!(value.as_ref()?)))).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
}

/// An element with fields that have values.
pub fn element(name: &str, fields: &[(&str, &str)]) -> String {
    let one = |(field, value): &(&str, &str)| format!("<{field}>{}</{field}>", escape(value));
    format!("<{name}>{}</{name}>\n", fields.iter().map(one).collect::<Vec<_>>().concat())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Every device that a query finds, in its order.
pub async fn devices(server: &Server, cookie: &str, query: &str) -> Vec<Value> {
    let (mut all, mut more) = (Vec::new(), String::new());
    loop {
        let answer = server.get(format!("{DEVICES}?limit=200&{query}{more}")).cookie(cookie).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.json());
        let page = answer.json();
        all.extend(page["data"].as_array().expect("data").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(cursor) if page["has_more"] == true => more = format!("&cursor={cursor}"),
            _ => return all,
        }
    }
}

/// One device with all its lists and its history.
pub async fn device(server: &Server, cookie: &str, id: &str) -> Value {
    read_device(server, cookie, id).await.ok(200)
}

pub async fn read_device(server: &Server, cookie: &str, id: &str) -> Answer {
    server.get(format!("{DEVICES}?id={id}&include=software,disks,volumes,nics,ports,supplies")).cookie(cookie).await
}

/// The only device there is, with all its lists and its history.
pub async fn only_device(server: &Server, cookie: &str) -> Value {
    let all = devices(server, cookie, "").await;
    let [one] = all.as_slice() else { panic!("one device, not {}: {all:#?}", all.len()) };
    device(server, cookie, one["id"].as_str().expect("an id")).await
}

/// Every event of devices so far, oldest first.
pub async fn device_events(server: &Server, tenancy: &Tenancy) -> Vec<Value> {
    server.events_of(tenancy, "device.").await
}

/// The kinds of all events of devices so far.
pub async fn device_event_kinds(server: &Server, tenancy: &Tenancy) -> Vec<String> {
    server.kinds_of(tenancy, "device.").await
}
