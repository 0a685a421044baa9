//! Rules of the house that the compiler cannot keep, run over the source text. Each says why it is there.
//!
//! A bypass for a good reason goes into the rule's list, with the reason beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates of the product: every rule holds for all of them.
pub const OURS: &[&str] = &[
    "crates/agent-reports/src",
    "crates/analytics/src",
    "crates/backup-reports/src",
    "crates/backups/src",
    "crates/cloud-fleet/src",
    "crates/clouds/src",
    "crates/expressions/src",
    "crates/feature-kit/src",
    "crates/figures/src",
    "crates/fleet/src",
    "crates/kernel/src",
    "crates/people/src",
    "crates/search-language/src",
    "crates/search/src",
    "crates/tenant-control/src",
    "crates/tickets/src",
    "crates/webhooks/src",
    "crates/workflows/src",
];
/// Where features are: in a crate of their own, or with others in one.
pub const FEATURES: &[&str] = &[
    "crates/analytics/src",
    "crates/backups/src",
    "crates/cloud-fleet/src",
    "crates/fleet/src",
    "crates/people/src",
    "crates/search/src",
    "crates/tenant-control/src/features",
    "crates/tickets/src",
    "crates/webhooks/src",
    "crates/workflows/src",
];
/// Crates that are one feature.
const WHOLE: &[&str] = &["analytics", "backups", "cloud-fleet", "search", "tickets", "webhooks", "workflows"];

/// The feature that a file belongs to.
fn feature_of(path: &str) -> Option<&str> {
    let folder = FEATURES.iter().find(|folder| path.starts_with(&format!("{folder}/")))?;
    let name = folder.split('/').nth(1)?;
    if WHOLE.contains(&name) { Some(name) } else { path[folder.len() + 1..].split(['/', '.']).next() }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Rust file below these folders: its path from the root, and its text.
pub fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let root = root();
    let mut open: Vec<PathBuf> =
        folders.iter().map(|folder| root.join(folder)).filter(|folder| folder.exists()).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no sources in {folders:?}");
    found
}

/// A text without its comments and without its unit tests, which stand at the end.
pub fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\n").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.fold(String::new(), |code, line| code + line + "\n")
}

/// What `needles` are found where `forbidden` says that they must not be, but for the listed places.
#[track_caller]
fn never(rule: &str, needles: &[&str], forbidden: impl Fn(&str) -> bool, allowed: &[(&str, &str)]) {
    let mut broken = Vec::new();
    let mut used = BTreeSet::new();
    for (path, text) in sources(OURS) {
        if !forbidden(&path) {
            continue;
        }
        for line in code(&text).lines().filter(|line| needles.iter().any(|needle| line.contains(needle))) {
            match allowed.iter().find(|(place, _)| *place == path) {
                Some((place, _)) => drop(used.insert(*place)),
                None => broken.push(format!("{path}: {}", line.trim())),
            }
        }
    }
    assert!(broken.is_empty(), "{rule}\n{}", broken.join("\n"));
    for (place, reason) in allowed {
        assert!(used.contains(place), "the exception for {place} ({reason}) is no longer used: remove it");
    }
}

pub fn is_feature(path: &str, file: &str) -> bool {
    let is_root = file == "mod.rs" && WHOLE.iter().any(|name| path == format!("crates/{name}/src/lib.rs"));
    feature_of(path).is_some() && (is_root || path.ends_with(&format!("/{file}")))
}

#[test]
fn rules_of_a_feature_know_no_http() {
    let rule = "mod.rs of a feature holds types and rules as plain functions: axum belongs into routes.rs";
    never(rule, &["axum"], |path| is_feature(path, "mod.rs"), &[]);
}

#[test]
fn sql_of_a_feature_knows_no_http() {
    let rule = "store.rs of a feature holds SQL: axum belongs into routes.rs";
    never(rule, &["axum"], |path| is_feature(path, "store.rs"), &[]);
}

#[test]
fn sql_of_a_feature_is_in_its_store() {
    let rule = "SQL of a feature belongs into its store.rs, where it is prepared by a test and found by its reader";
    let sql = ["SELECT ", "INSERT INTO ", "DELETE FROM ", "UPDATE \"", "statements!", "kernel::store::Tx"];
    let is_product = |path: &str| feature_of(path).is_some() || path.starts_with("crates/tenant-control/src/");
    let allowed =
        [("crates/webhooks/src/stored.rs", "two columns are counted: they are part of a statement of store.rs")];
    never(rule, &sql, |path| is_product(path) && !is_feature(path, "store.rs"), &allowed);
}

#[test]
fn a_feature_does_not_reach_into_the_store_of_another() {
    let mut broken = Vec::new();
    let all = sources(FEATURES);
    let features: BTreeSet<&str> = all.iter().filter_map(|(path, _)| feature_of(path)).collect();
    assert!(features.contains("tickets") && features.contains("api_keys"), "{features:?}");
    for (path, text) in &all {
        let own = feature_of(path);
        for other in features.iter().filter(|feature| Some(**feature) != own) {
            if code(text).contains(&format!("{other}::store")) {
                broken.push(format!("{path} uses {other}::store"));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "a feature publishes an event, or calls the other's public functions\n{}",
        broken.join("\n")
    );
}

#[test]
fn the_kernel_knows_no_feature() {
    let rule = "the kernel and what features share stand below the product and cannot know it";
    let is_below = |path: &str| path.starts_with("crates/kernel/") || path.starts_with("crates/feature-kit/");
    never(rule, &["tenant_control::"], is_below, &[]);
}

/// From the top down: a folder of the kernel imports what stands in a later line than its own, and nothing else.
const LAYERS: &[&[&str]] = &[
    &["jobs", "startup"],
    &["keyring"],
    &["http"],
    &["auth"],
    &["audit", "events", "outbound"],
    &["store"],
    &["base"],
];

#[test]
fn no_arrow_of_the_kernel_runs_up() {
    let layer = |part: &str| LAYERS.iter().position(|line| line.contains(&part));
    let mut broken = Vec::new();
    for (path, text) in sources(&["crates/kernel/src"]) {
        let within = path.trim_start_matches("crates/kernel/src/");
        let part = within.split(['/', '.']).next().unwrap_or_default();
        if part == "lib" {
            continue;
        }
        let own = layer(part).unwrap_or_else(|| panic!("{part} stands in no layer"));
        let text = code(&text);
        assert!(!text.contains("crate::{"), "{path}: one line for each folder, so that this test sees it");
        for used in text.split("crate::").skip(1) {
            let used = used.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap_or_default();
            if used != part && layer(used).is_some_and(|used| used <= own) {
                broken.push(format!("{path} imports {used}"));
            }
        }
    }
    assert!(broken.is_empty(), "arrows point down only\n{}", broken.join("\n"));
}

#[test]
fn nobody_but_outbound_is_an_http_client() {
    let rule = "kernel/outbound is the only HTTP client: one guard against requests into our own network";
    let clients = ["reqwest", "hyper::client", "hyper_util::client", "ureq", "TcpStream::connect"];
    never(rule, &clients, |path| !path.starts_with("crates/kernel/src/outbound"), &[]);
}

#[test]
fn nobody_but_the_index_makes_queries_of_it() {
    let rule = "a query is made where every term of it begins with the tenant, and nowhere else";
    never(rule, &["tantivy"], |path| !path.starts_with("crates/search/src/index/"), &[]);
    let terms = ["Term::from", "Term::with", "Term::wrap"];
    never(rule, &terms, |path| path != "crates/search/src/index/schema.rs", &[]);
}

#[test]
fn nobody_but_the_base_reads_the_clock() {
    let rule = "time comes from Env, so that a year passes in a test in a millisecond";
    let clocks = ["SystemTime", "Timestamp::now(", "Zoned::now(", "UtcDateTime::now(", "Utc::now("];
    never(rule, &clocks, |path| !path.starts_with("crates/kernel/src/base/clock.rs"), &[]);
}

#[test]
fn nobody_but_the_base_draws_lots() {
    let rule = "randomness comes from Env, so that a test can repeat it and no weak generator slips in";
    let generators = ["aws_lc_rs::rand", "rand::", "getrandom", "Uuid::new_v4", "Uuid::now_v7", "fastrand"];
    never(rule, &generators, |path| path != "crates/kernel/src/base/random.rs", &[]);
}

#[test]
fn nobody_but_the_settings_reads_the_environment() {
    let rule = "what comes from outside is read in one place and passed on as settings";
    let allowed = [
        ("crates/tenant-control/src/config.rs", "this is that place"),
        ("crates/tenant-control/src/config/store.rs", "this is that place"),
    ];
    never(rule, &["env::var", "env::vars", "option_env!"], |_| true, &allowed);
}

#[test]
fn nobody_outside_the_store_asks_which_engine_answers() {
    let rule = "a difference between the engines belongs into kernel/store, one in SQL into dialect.rs";
    let allowed = [(
        "crates/kernel/src/jobs/mod.rs",
        "the embedded store has one node: no use to exchange, and no lease but its own",
    )];
    never(
        rule,
        &["Engine::Sqlite", "Engine::Postgres"],
        |path| !path.starts_with("crates/kernel/src/store/"),
        &allowed,
    );
}

/// Every door to the data of all tenants at once: file, purpose, how often, and why it must be. Requests have none, which
/// the compiler sees to: they reach the `App`, and the store is the `Node`'s.
const SYSTEM_DOORS: &[(&str, &str, usize, &str)] = &[
    (
        "crates/kernel/src/auth/credentials.rs",
        "Credentials",
        3,
        "whose a key or cookie is, is what the read finds out; and which there are at all",
    ),
    ("crates/kernel/src/http/custom_credential.rs", "Credentials", 1, "whose it is, is what the read finds out"),
    ("crates/kernel/src/http/guest.rs", "SignIn", 1, "whose a domain or a sign-on is, is what the read finds out"),
    ("crates/kernel/src/auth/tenants.rs", "Startup", 1, "whether there is any tenant yet"),
    (
        "crates/kernel/src/auth/sessions.rs",
        "SignIn",
        1,
        "whose the session is that a browser had before, is what the read finds out",
    ),
    ("crates/kernel/src/auth/signin_links.rs", "SignIn", 1, "whose a sign-in link is, is what the read finds out"),
    (
        "crates/kernel/src/jobs/keyring.rs",
        "Housekeeping",
        5,
        "which sealing keys a node has belongs to no tenant, and the values of all are rewrapped",
    ),
    ("crates/kernel/src/jobs/lanes.rs", "Jobs", 6, "which lanes are due, of whichever tenant"),
    (
        "crates/kernel/src/jobs/mod.rs",
        "Housekeeping",
        3,
        "last use is noted, old rows are removed, clocks compared: for all",
    ),
    ("crates/kernel/src/jobs/mod.rs", "RateLimits", 1, "the counters of all callers are exchanged in one batch"),
    (
        "crates/kernel/src/startup.rs",
        "Startup",
        5,
        "the check values of the secrets and the base URL belong to no tenant",
    ),
    ("crates/kernel/src/store/health.rs", "Health", 2, "a probe reads and writes nothing of anybody"),
    ("crates/kernel/src/store/self_check.rs", "Health", 3, "doctor looks at the database as a whole"),
    ("crates/tenant-control/src/cli/admin.rs", "Cli", 1, "the operator lists tenants"),
    ("crates/tenant-control/src/cli/args.rs", "Cli", 1, "the operator names a tenant"),
    ("crates/tenant-control/src/cli/clock.rs", "Cli", 1, "the operator looks at the clocks of all tenants"),
    (
        "crates/tenant-control/src/cli/doctor.rs",
        "Cli",
        4,
        "a clock that ran ahead may be any tenant's, the search index has the records of all, any may sign on, and any has \
         sealed values",
    ),
    (
        "crates/analytics/src/fold/store.rs",
        "Jobs",
        3,
        "facts of all tenants are added up, and what is metered is written, together",
    ),
    ("crates/kernel/src/http/access.rs", "Platform", 1, "a platform operator reads the figures of all tenants"),
    ("crates/analytics/src/rebuild/store.rs", "Cli", 1, "the operator adds up the figures of all tenants"),
    (
        "crates/tenant-control/src/cli/serve.rs",
        "Startup",
        1,
        "records of before there were figures are counted, of all tenants",
    ),
    ("crates/tenant-control/src/cli/keyring.rs", "Cli", 1, "a sealing key seals the values of all tenants"),
    ("crates/people/src/api_keys/jobs.rs", "Jobs", 1, "which keys expire soon, of whichever tenant"),
    ("crates/backups/src/posture/clock/store.rs", "Jobs", 1, "whose backups must be judged, of whichever tenant"),
    ("crates/cloud-fleet/src/vms/ended/store.rs", "Housekeeping", 1, "which tenants have machines that ended long ago"),
    ("crates/fleet/src/devices/clock/store.rs", "Jobs", 1, "which devices must be looked at, of whichever tenant"),
    ("crates/fleet/src/devices/software/store.rs", "Jobs", 1, "whose software waits to be indexed"),
    ("crates/search/src/synchronizer.rs", "Jobs", 1, "one index has the records of all tenants"),
    ("crates/webhooks/src/jobs.rs", "Housekeeping", 1, "which tenants have a log to clean"),
    ("crates/webhooks/src/jobs.rs", "Jobs", 1, "how much waits in all"),
    ("crates/workflows/src/jobs.rs", "Housekeeping", 1, "which tenants have a history to clean"),
    ("crates/workflows/src/jobs.rs", "Jobs", 1, "how many runs wait in all"),
    ("crates/tenant-control/src/cli/backup.rs", "Cli", 1, "whether a file is a database of ours before it is restored"),
];

#[test]
fn the_doors_to_all_tenants_are_known() {
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (path, text) in sources(OURS) {
        for rest in code(&text).split(".system(").skip(1) {
            let purpose =
                rest.strip_prefix("Purpose::").unwrap_or_else(|| panic!("{path}: name the purpose at the call"));
            let purpose: String = purpose.chars().take_while(char::is_ascii_alphanumeric).collect();
            *found.entry((path.clone(), purpose)).or_default() += 1;
        }
    }
    let listed =
        SYSTEM_DOORS.iter().map(|(path, purpose, count, _)| (((*path).to_owned(), (*purpose).to_owned()), *count));
    let listed: BTreeMap<(String, String), usize> = listed.collect();
    assert_eq!(found, listed, "Store::system reaches every tenant: list the call in tidy.rs and say why it must");
}

#[test]
fn the_door_of_the_tests_is_used_by_tests_alone() {
    let rule = "a tenant's handle comes from a caller that was let in, or from a job's lease";
    let allowed = [("crates/kernel/src/store/db.rs", "this is where it is made")];
    never(rule, &["tenant_for_test"], |_| true, &allowed);
}

#[test]
fn the_operators_door_is_used_at_the_command_line_alone() {
    let rule =
        "a tenant's handle without a caller is for the operator's commands; a feature takes the handle it is given";
    let elsewhere = |path: &str| feature_of(path).is_some();
    let allowed = [(
        "crates/people/src/users/operator.rs",
        "people are there before anybody can call: what the operator's commands do with them",
    )];
    never(rule, &["open_as_operator("], elsewhere, &allowed);
}

#[test]
fn the_doors_of_signing_on_are_used_by_it_alone() {
    let rule = "a handle without a caller is for whoever is about to sign in";
    never(rule, &[".signing_on"], |path| !path.starts_with("crates/people/src/sso/"), &[]);
}

/// A newcomer reads a file in one sitting.
const LINES_MAX: usize = 500;

#[test]
fn no_file_is_too_long_to_read() {
    let all = sources(&["crates", "bench"]);
    let long: Vec<String> = all
        .iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines}"))
        .collect();
    assert!(long.is_empty(), "more than {LINES_MAX} lines: split by operation\n{}", long.join("\n"));
}

#[test]
fn nothing_is_left_for_later() {
    // Written apart, so that this file does not find itself.
    let words = [
        concat!("to", "do!"),
        concat!("unim", "plemented!"),
        concat!("#[ig", "nore"),
        concat!("db", "g!("),
        concat!("FIX", "ME"),
    ];
    let mut broken = Vec::new();
    for (path, text) in sources(&["crates", "bench"]) {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| words.iter().any(|word| line.contains(word)))
        {
            broken.push(format!("{path}:{}: {}", number + 1, line.trim()));
        }
    }
    assert!(
        broken.is_empty(),
        "finish it or leave it out; a test that does not run proves nothing\n{}",
        broken.join("\n")
    );
}

/// Crates that the lock file has in more than one version, and whose fault that is.
const DOUBLES: &[(&str, &str)] = &[
    ("base64", "postgres-protocol and metrics-exporter-prometheus are on 0.22"),
    ("bit-set", "antlr4rust of cel, which is for tests alone, is on 0.11, fancy-regex of jsonschema on 0.8"),
    ("bit-vec", "follows bit-set; yasna of the tests is on 0.9"),
    ("bitflags", "defmt, which no target of ours builds, is on 1"),
    ("darling", "bon of tantivy is on 0.23; build time alone"),
    ("darling_core", "follows darling"),
    ("darling_macro", "follows darling"),
    ("fallible-iterator", "tokio-postgres is on 0.2"),
    ("getrandom", "ring, ahash and rand each want another; ours is aws-lc-rs"),
    ("hashbrown", "metrics-util is on 0.16"),
    ("r-efi", "of getrandom on UEFI, which we do not build for"),
    ("rand", "metrics-util is on 0.9, tokio-postgres on 0.10"),
    ("rand_core", "follows rand"),
    ("sketches-ddsketch", "metrics-exporter-prometheus and tantivy each want another"),
    ("strum", "croner is on 0.27, jsonschema on 0.28"),
    ("strum_macros", "follows strum"),
    ("syn", "the macro crates move to 3 one by one; build time alone"),
    ("synstructure", "follows syn"),
    ("tower-http", "reqwest is on 0.6; tests alone"),
    ("untrusted", "aws-lc-rs is on 0.7"),
    ("wasi", "of targets that we do not build for"),
    ("windows-sys", "of targets that we do not build for"),
];

#[test]
fn the_lock_file_has_no_unknown_doubles() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = package.split("name = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        *versions.entry(name).or_default() += 1;
    }
    let doubles: BTreeSet<&str> = versions.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name).collect();
    let listed: BTreeSet<&str> = DOUBLES.iter().map(|(name, _)| *name).collect();
    let news: Vec<_> = doubles.difference(&listed).collect();
    assert!(news.is_empty(), "in more than one version: {news:?}. Take one version out, or list it with the reason");
    let gone: Vec<_> = listed.difference(&doubles).collect();
    assert!(gone.is_empty(), "no longer double: {gone:?}. Remove them from the list");
}

#[test]
fn every_dependency_comes_from_the_registry() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for source in lock.lines().filter_map(|line| line.strip_prefix("source = ")) {
        assert_eq!(source, "\"registry+https://github.com/rust-lang/crates.io-index\"");
    }
}
