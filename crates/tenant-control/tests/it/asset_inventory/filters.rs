//! Filters: each alone, several together, and never one that is ignored.

use kernel::base::{MINUTE_MS, StringEnum};
use serde_json::{Value, json};
use tenant_control::features::devices::{DeviceStatus, FullDevice, Platform, Type};

use super::{INVENTORY, NOWHERE, add_all, list, software, text, walk, with};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::organization;

/// Whether a device is wanted.
type Condition<'a> = Box<dyn Fn(&Value) -> bool + 'a>;

const TYPES: [&str; 8] = ["server", "workstation", "laptop", "mobile", "network", "printer", "virtual", "other"];
const PLATFORMS: [&str; 6] = ["windows", "linux", "macos", "android", "ios", "other"];
const STATUSES: [&str; 3] = ["online", "offline", "stale"];
const HEALTHS: [&str; 4] = ["unknown", "healthy", "needs_attention", "unhealthy"];
const COLOURS: [&str; 3] = ["red", "green", "blue"];
const ODD: [&str; 4] = ["a&b=c", "50%", "two words", "ü"];
const COUNT: usize = 48;

/// A tenant with devices of many kinds, beside another with the like of them.
struct Scene<'a> {
    server: &'a Server,
    acme: Tenancy,
    organizations: [String; 2],
    foreign: String,
    all: Vec<Value>,
}

/// The n-th of them, of one of these organizations or of none.
fn device(server: &Server, n: usize, organizations: &[String]) -> FullDevice {
    with(&format!("{}-{n}", ["web", "db", "print"][n % 3]), |full| {
        let device = &mut full.device;
        device.r#type = Type::parse(TYPES[n % 8]).unwrap();
        device.platform = Platform::parse(PLATFORMS[(n / 2) % 6]).unwrap();
        device.status = DeviceStatus::parse(STATUSES[n % 3]).unwrap();
        device.organization_id = organizations.get((n / 5) % 3).map(|id| id.parse().unwrap());
        device.tags = vec![COLOURS[(n / 4) % 3].to_owned(), ODD[n % 4].to_owned()];
        // Health follows from the rest.
        let health = (n / 3) % 4;
        device.inventory_at = (health > 0).then(|| server.now());
        device.needs_reboot = Some(health == 2);
        device.patch.failed = Some(i64::from(health == 3));
        full.parts.software = vec![software(["Bash", "zsh"][n % 2], &format!("5.{}", n % 4))];
    })
}

impl Scene<'_> {
    async fn set(server: &Server) -> Scene<'_> {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let organizations = [organization(server, &acme, "initech").await, organization(server, &acme, "hooli").await];
        let foreign = organization(server, &globex, "initech").await;
        for half in [0..COUNT / 2, COUNT / 2..COUNT] {
            let devices = half.map(|n| device(server, n, &organizations)).collect();
            add_all(server, &acme, devices).await;
            server.advance(MINUTE_MS);
        }
        let theirs = (0..COUNT / 4).map(|n| device(server, n, std::slice::from_ref(&foreign))).collect();
        add_all(server, &globex, theirs).await;
        let all = list(server, &acme, "limit=200").await;
        let scene = Scene { server, acme, organizations, foreign, all };
        scene.check();
        scene
    }

    /// What all the rest stands on: each device is there, as it was made, newest first.
    fn check(&self) {
        assert_eq!(self.all.len(), COUNT);
        for (at, row) in self.all.iter().enumerate() {
            let n = COUNT - 1 - at;
            let name = format!("{}-{n}", ["web", "db", "print"][n % 3]);
            let shown = ["hostname", "type", "platform", "status"].map(|field| text(row, field));
            assert_eq!(shown, [&name, TYPES[n % 8], PLATFORMS[(n / 2) % 6], STATUSES[n % 3]]);
            assert_eq!(row["tags"], json!([COLOURS[(n / 4) % 3], ODD[n % 4]]));
            assert_eq!(row["organization_id"], json!(self.organizations.get((n / 5) % 3)));
        }
    }

    /// Asserts that a query finds what a predicate wants of all devices, newest first, and returns how many.
    async fn finds(&self, query: &str, wanted: impl Fn(&Value) -> bool) -> usize {
        let expected: Vec<&Value> = self.all.iter().filter(|row| wanted(row)).collect();
        let found = list(self.server, &self.acme, &format!("limit=200&{query}")).await;
        let name = |row: &Value| row["hostname"].clone();
        let (expected_names, found_names): (Vec<_>, Vec<_>) =
            (expected.iter().map(|row| name(row)).collect(), found.iter().map(name).collect());
        assert_eq!(found_names, expected_names, "{query}");
        assert!(found.iter().eq(expected), "{query} shows devices as they are");
        found.len()
    }
}

fn is(row: &Value, field: &str, any: &[&str]) -> bool {
    any.contains(&row[field].as_str().unwrap_or("none"))
}

fn tagged(row: &Value, any: &[&str]) -> bool {
    row["tags"].as_array().unwrap().iter().any(|tag| any.contains(&tag.as_str().unwrap()))
}

/// The number in its name.
fn number(row: &Value) -> usize {
    text(row, "hostname").split('-').nth(1).unwrap().parse().unwrap()
}

over_http! {
    async fn each_filter_alone_finds_any_of_its_values(server: Server) {
        let scene = Scene::set(&server).await;
        let fields = [("type", &TYPES[..]), ("platform", &PLATFORMS), ("status", &STATUSES), ("health", &HEALTHS)];
        for (field, words) in fields {
            for (at, word) in words.iter().enumerate() {
                let other = words[(at + 2) % words.len()];
                let one = scene.finds(&format!("{field}={word}"), |row| is(row, field, &[word])).await;
                assert!(one > 0, "{field}={word} finds nothing, and shows nothing");
                scene.finds(&format!("{field}={word},{other}"), |row| is(row, field, &[word, other])).await;
                scene.finds(&format!("{field}={word},{word}"), |row| is(row, field, &[word])).await;
            }
            assert_eq!(scene.finds(&format!("{field}={}", words.join(",")), |_| true).await, COUNT);
        }
        let [first, second] = [scene.organizations[0].as_str(), scene.organizations[1].as_str()];
        for any in [vec![first], vec![second], vec!["none"], vec![second, first], vec!["none", first], vec![first, second, "none"]] {
            let query = format!("organization_id={}", any.join(","));
            assert!(scene.finds(&query, |row| is(row, "organization_id", &any)).await > 0);
        }
        for (spelt, tags) in [
            ("red", vec!["red"]),
            ("red,blue", vec!["red", "blue"]),
            ("a%26b%3Dc", vec!["a&b=c"]),
            ("50%25", vec!["50%"]),
            ("two%20words", vec!["two words"]),
            ("two+words", vec!["two words"]),
            ("%C3%BC,red", vec!["ü", "red"]),
            ("ü,nothing", vec!["ü"]),
        ] {
            assert!(scene.finds(&format!("tag={spelt}"), |row| tagged(row, &tags)).await > 0);
        }
        assert_eq!(scene.finds("software=bash", |row| number(row).is_multiple_of(2)).await, COUNT / 2);
        assert_eq!(scene.finds("software=bash,zsh", |_| true).await, COUNT);
        assert_eq!(scene.finds("q=web", |row| number(row).is_multiple_of(3)).await, COUNT / 3);
    }

    async fn what_nothing_has_finds_nothing(server: Server) {
        let scene = Scene::set(&server).await;
        for query in [
            format!("organization_id={NOWHERE}"),
            format!("organization_id={}", scene.foreign),
            format!("organization_id={NOWHERE},{}&type=server", scene.foreign),
            format!("organization_id={}&updated_since=2026-01-01T00:00:00Z", scene.foreign),
            "tag=Red".to_owned(),
            "tag=re".to_owned(),
            "tag=%25".to_owned(),
            "tag=_ed".to_owned(),
            "software=bas".to_owned(),
            "software=bash%25".to_owned(),
            "software=bash@4".to_owned(),
            "software=bash@5".to_owned(),
            "q=nonsense".to_owned(),
            "q=web+db".to_owned(),
            "q=eb".to_owned(),
            "updated_since=2026-02-01T00:00:00Z".to_owned(),
            "updated_since=9999-01-01T00:00:00Z&type=server".to_owned(),
        ] {
            let page = server.get(format!("{INVENTORY}?{query}")).cookie(&scene.acme.admin).await.ok(200);
            assert_eq!(page, json!({"data": [], "has_more": false, "next_cursor": null}), "{query}");
        }
    }

    async fn filters_narrow_each_other_down(server: Server) {
        let scene = Scene::set(&server).await;
        let place = scene.organizations[0].clone();
        let place_id = place.as_str();
        let conditions: Vec<(String, Condition<'_>)> = vec![
            ("type=server,laptop,virtual".to_owned(), Box::new(|row| is(row, "type", &["server", "laptop", "virtual"]))),
            ("platform=windows,linux,ios".to_owned(), Box::new(|row| is(row, "platform", &["windows", "linux", "ios"]))),
            ("status=online,stale".to_owned(), Box::new(|row| is(row, "status", &["online", "stale"]))),
            ("health=unhealthy,unknown".to_owned(), Box::new(|row| is(row, "health", &["unhealthy", "unknown"]))),
            (format!("organization_id={place},none"), Box::new(move |row| is(row, "organization_id", &[place_id, "none"]))),
            ("tag=red,50%25".to_owned(), Box::new(|row| tagged(row, &["red", "50%"]))),
            ("software=bash@5.0,zsh".to_owned(), Box::new(|row| number(row) % 2 == 1 || number(row).is_multiple_of(4))),
            ("q=we".to_owned(), Box::new(|row| number(row).is_multiple_of(3))),
        ];
        let mut found = 0;
        for (n, (first, wants)) in conditions.iter().enumerate() {
            for (second, also_wants) in &conditions[n + 1..] {
                found += scene.finds(&format!("{second}&{first}"), |row| wants(row) && also_wants(row)).await;
            }
        }
        assert!(found > 100, "the conditions do not exclude each other: {found}");
        let most: Vec<&str> = conditions.iter().map(|(query, _)| query.as_str()).collect();
        scene.finds(&most.join("&"), |row| conditions.iter().all(|(_, wants)| wants(row))).await;
    }

    /// In the order of changes, which here is that of their making.
    async fn filters_hold_with_updated_since_as_well(server: Server) {
        let scene = Scene::set(&server).await;
        let place = scene.organizations[1].as_str();
        let conditions: [(&str, Condition<'_>); 6] = [
            ("type=server,other", Box::new(|row| is(row, "type", &["server", "other"]))),
            ("health=healthy", Box::new(|row| is(row, "health", &["healthy"]))),
            ("tag=ü", Box::new(|row| tagged(row, &["ü"]))),
            ("software=zsh@5.3", Box::new(|row| number(row) % 4 == 3)),
            ("q=db", Box::new(|row| number(row) % 3 == 1)),
            ("organization_id=none", Box::new(|row| row["organization_id"].is_null())),
        ];
        let middle = text(&scene.all[0], "updated_at");
        for (since, from) in [("2026-01-01T00:00:00Z", 0), (middle, COUNT / 2)] {
            for (query, wants) in &conditions {
                let wanted = |row: &&Value| wants(row) && number(row) >= from;
                let expected: Vec<&Value> = scene.all.iter().rev().filter(wanted).collect();
                assert!(!expected.is_empty());
                let (found, _) = walk(&server, &scene.acme, &format!("updated_since={since}&{query}&limit=3")).await;
                assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query} since {since}");
            }
            let of_place = format!("organization_id={place},none&updated_since={since}&limit=4");
            let expected = scene.all.iter().rev().filter(|row| is(row, "organization_id", &[place, "none"]) && number(row) >= from);
            assert!(walk(&server, &scene.acme, &of_place).await.0.iter().eq(expected));
        }
    }
}
