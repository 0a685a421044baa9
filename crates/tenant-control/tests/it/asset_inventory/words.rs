//! `q`, and `software` with its versions.

use serde_json::Value;

use super::{add_all, bulk, change, names, remove, software, text, walk, with};
use crate::support::{Server, Tenancy, over_http};

/// Asserts that each query finds these devices, whichever comes first.
async fn finds(server: &Server, tenancy: &Tenancy, queries: &[(&str, &[&str])]) {
    for (query, wanted) in queries {
        let mut found = names(server, tenancy, query).await;
        found.sort_unstable();
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{query}");
        // In the order of changes it is the same that is found.
        let mut followed = names(server, tenancy, &format!("{query}&updated_since=2026-01-01T00:00:00Z")).await;
        followed.sort_unstable();
        assert_eq!(followed, wanted, "{query} with updated_since");
    }
}

async fn scene(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    let some = |text: &str| Some(text.to_owned());
    let devices = vec![
        with("web01.acme.test", |full| {
            full.device.serial_number = some("7XK2P13");
            full.device.model = some("PowerEdge R640");
            full.device.primary_ip = some("192.0.2.10");
            full.device.primary_mac = some("02:fc:00:00:0a:01");
        }),
        with("db-2", |full| {
            full.device.display_name = some("Größe Datenbank (Jürgen's)");
            full.device.serial_number = some("VM-56 4d 1a");
            full.device.model = some("VMware Virtual Platform");
            full.device.primary_ip = some("192.0.20.7");
            full.device.primary_mac = some("02:fc:00:ff:00:02");
        }),
        with("ПРИНТЕР", |full| {
            full.device.display_name = some("LaserJet 4000");
            full.device.primary_ip = some("2001:db8::a:1");
            full.device.asset_tag = some("hiddenasset");
            full.device.last_logged_user = some("hiddenuser");
            full.device.manufacturer = some("hiddenmaker");
        }),
    ];
    add_all(server, &acme, devices).await;
    acme
}

const WEB: &str = "web01.acme.test";
const DB: &str = "db-2";
const PRINTER: &str = "ПРИНТЕР";

over_http! {
    async fn a_word_is_the_beginning_of_one_in_any_of_the_fields(server: Server) {
        let acme = scene(&server).await;
        finds(&server, &acme, &[
            // The hostname, whole or in parts.
            ("q=web01", &[WEB]), ("q=WEB", &[WEB]), ("q=web01.acme.test", &[WEB]), ("q=acme", &[WEB]), ("q=te", &[WEB]),
            ("q=web-01", &[WEB]), ("q=web-0", &[WEB]), ("q=db2", &[DB]), ("q=db-3", &[]), ("q=db3", &[]),
            ("q=db", &[DB, PRINTER]), ("q=принт", &[PRINTER]), ("q=ПРИ", &[PRINTER]),
            // The display name.
            ("q=größe", &[DB]), ("q=GRÖ", &[DB]), ("q=groesse", &[DB]), ("q=grosse", &[DB]), ("q=juergen", &[DB]), ("q=jurgen", &[DB]), ("q=jurgens", &[DB]), ("q=daten", &[DB]), ("q=jürgen%27s", &[DB]), ("q=laserjet", &[PRINTER]),
            ("q=4000", &[PRINTER]), ("q=400", &[PRINTER]),
            // The serial number and the model.
            ("q=7xk2", &[WEB]), ("q=7XK2P13", &[WEB]), ("q=r-640", &[WEB]), ("q=laserjet4000", &[PRINTER]), ("q=vm-56", &[DB]), ("q=4d+1a", &[DB]), ("q=r640", &[WEB]),
            ("q=poweredge", &[WEB]), ("q=vm", &[DB]),
            // Several words, in any order and of several fields.
            ("q=poweredge+web", &[WEB]), ("q=web+r6+7xk", &[WEB]), ("q=daten+db", &[DB]), ("q=web+daten", &[]),
            ("q=++web++", &[WEB]), ("q=web+web", &[WEB]),
            // What is not looked at, and what is no beginning.
            ("q=hiddenasset", &[]), ("q=hiddenuser", &[]), ("q=hiddenmaker", &[]), ("q=eb01", &[]), ("q=linux", &[]),
            ("q=web%25", &[WEB]),
        ]).await;
    }

    async fn an_address_is_found_by_its_beginning(server: Server) {
        let acme = scene(&server).await;
        finds(&server, &acme, &[
            ("q=192.0.2.10", &[WEB]), ("q=192.0.20", &[DB]), ("q=192.0.2", &[WEB, DB]), ("q=192", &[WEB, DB]),
            ("q=2001:db8", &[PRINTER]), ("q=2001:DB8::a:1", &[PRINTER]), ("q=193", &[]), ("q=92.0", &[]),
        ]).await;
    }

    async fn a_hardware_address_is_found_in_every_notation(server: Server) {
        let acme = scene(&server).await;
        finds(&server, &acme, &[
            ("q=02:fc:00:00:0a:01", &[WEB]), ("q=02-FC-00-00-0A-01", &[WEB]), ("q=02fc.0000.0a01", &[WEB]),
            ("q=02fc00000a01", &[WEB]), ("q=02FC0000", &[WEB]), ("q=02:fc", &[WEB, DB]),
            ("q=0a01", &[WEB]), ("q=00ff.0002", &[DB]), ("q=000a01", &[WEB]), ("q=ff0002", &[DB]), ("q=0a02", &[]),
            ("q=02fc.00ff", &[DB]), ("q=02fc00ff0003", &[]), ("q=02fd", &[]),
            ("q=02:fc:00:00:0a:01+poweredge", &[WEB]), ("q=02:fc:00:00:0a:01+vmware", &[]),
        ]).await;
    }

    /// Its parts stand on many devices, and more words begin like one of them than are followed one by one.
    async fn a_hardware_address_is_found_at_once_among_thousands(server: Server) {
        let acme = server.tenant("acme").await;
        bulk::load(&server, &acme, 7_000, 10).await;
        bulk::equip(&server, &acme).await;
        let card = |name: &str, mac: &str| with(name, |full| full.device.primary_mac = Some(mac.to_owned()));
        let mut devices: Vec<_> = (0..150).map(|n| with(&format!("fc{n:03}"), |_| {})).collect();
        devices.extend([card("needle", "02:fc:00:00:0a:01"), card("other", "02:aa:00:00:0a:01"), with("x-02-fc-00a", |_| {})]);
        devices.extend([card("middle", "aa:02:fc:00:00:01"), with("serial", |full| full.device.serial_number = Some("02FC00000A01".to_owned()))]);
        add_all(&server, &acme, devices).await;
        add_all(&server, &acme, vec![card("of-a-fleet", "02:50:56:ab:12:34")]).await;
        let whole = ["serial", "needle"];
        for (query, wanted) in [
            ("q=02:fc:00:00:0a:01", &whole[..]), ("q=02-FC-00-00-0A-01", &whole), ("q=02fc.0000.0a01", &whole), ("q=02FC00000A01", &whole),
            // A beginning is also found as words in a row, wherever they stand.
            ("q=02:fc:00", &["middle", "x-02-fc-00a", "needle"]), ("q=02-fc-00-00", &["middle", "needle"]), ("q=fc:00:00", &["middle", "needle"]),
            ("q=02fc.0000", &["needle"]), ("q=02:fc:00:00:0a:02", &[]),
            ("q=025056-ab1234", &["of-a-fleet"]), ("q=025056-ab1", &["of-a-fleet"]), ("q=0250.56ab", &["of-a-fleet"]), ("q=0250.56ac", &[]),
        ] {
            let hostnames = |rows: &[Value]| rows.iter().map(|row| text(row, "hostname").to_owned()).collect::<Vec<_>>();
            let (rows, pages) = walk(&server, &acme, query).await;
            assert_eq!(hostnames(&rows), wanted, "{query}");
            assert_eq!(pages.len(), 1, "{query}: {pages:?}");
            let (rows, _) = walk(&server, &acme, &format!("{query}&updated_since=2000-01-01T00:00:00Z")).await;
            assert!(hostnames(&rows).iter().rev().eq(wanted), "{query} in the order of changes: {:?}", hostnames(&rows));
        }
    }

    /// Its parts follow each other, as they do where they are found.
    async fn a_word_of_several_parts_is_found_as_it_stands(server: Server) {
        let acme = scene(&server).await;
        let devices = vec![
            with("rack-1011", |_| {}),
            with("left", |full| full.device.primary_ip = Some("10.1.2.3".to_owned())),
            with("right", |full| full.device.primary_ip = Some("10.20.1.3".to_owned())),
            with("dead-beef", |_| {}),
            with("hex", |full| full.device.serial_number = Some("deadbeef".to_owned())),
        ];
        add_all(&server, &acme, devices).await;
        finds(&server, &acme, &[
            ("q=db-2", &[DB]), ("q=192.0.2.1", &[WEB]), ("q=02-fc-00-f", &[DB]), ("q=02:fc:00:00:0a:01:00", &[]),
            ("q=10.1", &["left"]), ("q=10.1.3", &[]), ("q=10+1.3", &["right"]), ("q=1011", &["rack-1011"]),
            ("q=dead-beef", &["dead-beef"]), ("q=deadbeef", &["dead-beef", "hex"]), ("q=acme.web01", &[]), ("q=01.acme", &[]),
        ]).await;
    }

    async fn what_a_device_was_called_does_not_find_it_any_more(server: Server) {
        let acme = server.tenant("acme").await;
        let old = with("old-name", |full| full.device.primary_mac = Some("02:fc:00:00:00:01".to_owned()));
        let ids = add_all(&server, &acme, vec![old, with("other", |_| {})]).await;
        finds(&server, &acme, &[("q=old", &["old-name"]), ("q=02fc", &["old-name"])]).await;
        change(&server, &acme, &ids[0], |full| {
            full.device.hostname = Some("new-name".to_owned());
            full.device.primary_mac = Some("02:aa:00:00:00:01".to_owned());
            full.device.tags = vec!["a".to_owned()];
        }).await;
        finds(&server, &acme, &[("q=old", &[]), ("q=02fc", &[]), ("q=new-name", &["new-name"]), ("q=02aa", &["new-name"]),
            ("tag=a", &["new-name"])]).await;
        change(&server, &acme, &ids[0], |full| full.device.tags.clear()).await;
        finds(&server, &acme, &[("tag=a", &[]), ("q=name", &["new-name"])]).await;
        remove(&server, &acme, &ids[0]).await;
        assert_eq!(names(&server, &acme, "q=name").await, Vec::<String>::new());
        assert_eq!(names(&server, &acme, "q=name&updated_since=2026-01-01T00:00:00Z").await, ["new-name"], "its tombstone");
        // More different words begin so than are followed one by one.
        let many: Vec<_> = (0..150).map(|n| with(&format!("x{n:03}"), |_| {})).collect();
        add_all(&server, &acme, many).await;
        assert_eq!(names(&server, &acme, "q=x&limit=200").await.len(), 150);
        assert_eq!(names(&server, &acme, "q=x+x149").await, ["x149"]);
        assert_eq!(names(&server, &acme, "q=x14&limit=3").await, ["x149", "x148", "x147"]);
    }

    async fn software_is_found_by_name_and_by_version(server: Server) {
        let acme = server.tenant("acme").await;
        let devices = vec![
            with("one", |full| full.parts.software = vec![software("OpenSSL", "3.0.11"), software("Bash", "5.2"), software("Ünïcode Tool", "1")]),
            with("two", |full| full.parts.software = vec![software("openssl", "3.0.15"), software("OPENSSL", "3.0.11-1"), software("@scope/tool", "1.0")]),
            with("three", |full| full.parts.software = vec![software("openssl", ""), software("openssl", "1.1"), software("openssl", "1.1")]),
            with("four", |full| full.parts.software = vec![software("openssl-dev", "3.0.11"), software("kernel", ""), software("git", "2@beta")]),
        ];
        let ids = add_all(&server, &acme, devices).await;
        finds(&server, &acme, &[
            ("software=openssl", &["one", "two", "three"]), ("software=OpenSSL", &["one", "two", "three"]),
            ("software=openssl@3.0.11", &["one"]), ("software=OPENSSL@3.0.11", &["one"]), ("software=openssl@3.0.11-1", &["two"]),
            ("software=openssl@3.0.15", &["two"]), ("software=openssl@1.1", &["three"]), ("software=openssl@3.0", &[]),
            ("software=openssl@3.0.11,openssl@1.1", &["one", "three"]), ("software=openssl@3.0.11,bash", &["one"]),
            ("software=openssl@9,kernel", &["four"]), ("software=openssl,openssl@9", &["one", "two", "three"]),
            ("software=openssl-dev", &["four"]), ("software=kernel", &["four"]), ("software=kernel@1", &[]),
            ("software=@scope/tool", &["two"]), ("software=@scope/tool@1.0", &["two"]), ("software=%40scope%2Ftool", &["two"]),
            ("software=ÜNÏCODE%20tool", &["one"]), ("software=nothing", &[]), ("software=bash@5.2&type=server", &["one"]),
            ("software=bash@5.2&type=laptop", &[]), ("software=openssl@3.0.11&q=one", &["one"]), ("software=openssl&q=one", &["one"]),
        ]).await;
        // An upgrade is found under what it is now.
        change(&server, &acme, &ids[0], |full| full.parts.software = vec![software("OpenSSL", "3.0.16")]).await;
        finds(&server, &acme, &[("software=openssl@3.0.11", &[]), ("software=openssl@3.0.16", &["one"]), ("software=bash", &[])]).await;
        remove(&server, &acme, &ids[0]).await;
        assert_eq!(names(&server, &acme, "software=openssl@3.0.16").await, Vec::<String>::new());
    }
}
